#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/scale/scale_search.hpp"

namespace tessera::tools {

/// What was searched, and the results.
struct ScaleResult {
  Settings settings;
  Family family;
  std::size_t budget_bytes = 0;
  std::vector<ScalePoint> points;

  /// The point of `strategy` on `ranks`; null if it was not requested.
  [[nodiscard]] const ScalePoint* find(Strategy strategy, int ranks) const;
};

[[nodiscard]] nlohmann::ordered_json scale_json(const ScaleResult& result);

/// The request in a few lines, the table, and the reasons why points were not measured.
[[nodiscard]] std::string scale_text(const ScaleResult& result);

/// A chart of parameters against ranks, both logarithmic, at most 100 columns wide: one letter per
/// strategy.
/// Empty if nothing fits.
[[nodiscard]] std::string scale_chart(const ScaleResult& result);

/// "124 M", "7.50 B": three digits, powers of 1000.
[[nodiscard]] std::string format_count(std::int64_t count);

}  // namespace tessera::tools
