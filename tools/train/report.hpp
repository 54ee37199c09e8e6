#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// Ranks whose steps a page shows: hundreds would be slow to read, and they resemble rank 1.
inline constexpr int kRanksShown = 8;

/// The page of `kind` ("train", "compare", "plan", "scale"): `document` with the command line, the
/// time, and a timeline of the recorded step of each result.
[[nodiscard]] std::string report_page(std::string_view kind, const nlohmann::ordered_json& document,
                                      const Settings& settings,
                                      const std::vector<RunResult>& results);

/// Writes `settings.report`, if requested, and prints its path.
void write_report(std::string_view kind, const nlohmann::ordered_json& document,
                  const Settings& settings, const std::vector<RunResult>& results);

/// Writes `settings.trace`, if requested, and prints its path.
void write_trace(const Settings& settings, const RunResult& result);

}  // namespace tessera::tools
