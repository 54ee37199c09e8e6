#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/scale/scale_search.hpp"

namespace tessera::tools {

/// What was searched and what was found.
struct ScaleResult {
  Settings settings;
  Family family;
  std::size_t budget_bytes = 0;
  std::vector<ScalePoint> points;

  /// The point of `strategy` on `ranks`; null if it was not asked for.
  [[nodiscard]] const ScalePoint* find(Strategy strategy, int ranks) const;
};

[[nodiscard]] nlohmann::ordered_json scale_json(const ScaleResult& result);

/// The question in a few lines, the table, and why what was not measured was not.
[[nodiscard]] std::string scale_text(const ScaleResult& result);

/// Parameters against ranks, both logarithmic, at most 100 columns wide: one letter a strategy.
/// Empty if nothing fits.
[[nodiscard]] std::string scale_chart(const ScaleResult& result);

/// "124 M", "7.50 B": three digits, powers of 1000.
[[nodiscard]] std::string format_count(std::int64_t count);

}  // namespace tessera::tools
