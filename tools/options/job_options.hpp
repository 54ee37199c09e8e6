#pragma once

#include <string>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// Size and hash of all of `source`, or of evenly spaced blocks that can be read within seconds.
/// Empty for null.
[[nodiscard]] std::string content_of(const TokenSource* source);
/// "12 documents of hash 0123456789abcdef", for the positions of documents.
[[nodiscard]] std::string content_of(const std::vector<std::int64_t>& starts);

/// What all processes of a job must have in common, as this process has it: the command, its
/// options by name with their values, size and hash of the data that it opened, and the step that
/// it resumes from. It omits what belongs to one process or machine: paths, --budget, where ranks
/// run, and the contents of --init (check_same_init).
[[nodiscard]] std::string job_options(const Job& job);

/// ConfigError that names the option, the ranks and both values unless all `options`, the results
/// of job_options by rank, are equal.
void check_same_options(const std::vector<std::string>& options);

/// "rank 3", "ranks 1, 2, 5 and 9 more".
[[nodiscard]] std::string some_ranks(std::vector<std::size_t> ranks);

}  // namespace tessera::tools
