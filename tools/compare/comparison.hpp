#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// The document of `compare --json`.
[[nodiscard]] nlohmann::ordered_json comparison_json(const Job& job,
                                                     const std::vector<RunResult>& results);

/// The cost of each strategy, at most 100 columns wide: times and bytes, then each rank's peak.
[[nodiscard]] std::string comparison_text(const Job& job, const std::vector<RunResult>& results);

/// One line: the number of host threads that update offloaded states. Empty without offload.
[[nodiscard]] std::string host_threads_line(const Job& job, const RunResult& result);

/// One line: whether all strategies gave the same losses to the bit, and if not, where they
/// diverge.
[[nodiscard]] std::string compare_losses(const std::vector<RunResult>& results);

}  // namespace tessera::tools
