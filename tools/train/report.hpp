#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// Ranks of which a page shows a step: hundreds would be slow to read, and they resemble rank 1.
inline constexpr int kRanksShown = 8;

/// The page of `kind` ("train", "compare", "plan", "scale"): `document` with what was typed, when,
/// and a timeline of the recorded step of each result.
[[nodiscard]] std::string report_page(std::string_view kind, const nlohmann::ordered_json& document,
                                      const Settings& settings,
                                      const std::vector<RunResult>& results);

/// Writes `settings.report`, if asked for, and says where it is.
void write_report(std::string_view kind, const nlohmann::ordered_json& document,
                  const Settings& settings, const std::vector<RunResult>& results);

/// Writes `settings.trace`, if asked for, and says where it is.
void write_trace(const Settings& settings, const RunResult& result);

}  // namespace tessera::tools
