#pragma once

#include <string>
#include <vector>

#include "tools/train/trainer.hpp"

namespace tessera::tools {

/// Size and hash of all of `source`, or of evenly spaced blocks that are read within seconds.
/// Empty for null.
[[nodiscard]] std::string content_of(const TokenSource* source);

/// What the processes of a job have to have alike, as this one has it: the command, its options by
/// name with their values, size and hash of the data that it opened, and the step that it resumes
/// from. Left out is what belongs
/// to one process or machine: paths, --budget, where ranks run, what --init holds
/// (check_same_init).
[[nodiscard]] std::string job_options(const Job& job);

/// ConfigError that names the option, the ranks and both values unless `options`, what job_options
/// gives by rank, are the same.
void check_same_options(const std::vector<std::string>& options);

/// "rank 3", "ranks 1, 2, 5 and 9 more".
[[nodiscard]] std::string some_ranks(std::vector<std::size_t> ranks);

}  // namespace tessera::tools
