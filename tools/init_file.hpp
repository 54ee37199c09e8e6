#pragma once

#include <string>
#include <vector>

#include "settings.hpp"

namespace tessera::tools {

/// Of all its bytes; empty if `path` is. FormatError if it cannot be read.
[[nodiscard]] std::string hash_of_file(const std::string& path);

/// Each process of a job reads --init where it runs. ConfigError that names the ranks unless
/// `hashes`, by rank, are the same: copies of the weights would differ from the first step on, and
/// shards be of several models.
void check_same_init(const Settings& settings, const std::vector<std::string>& hashes);

}  // namespace tessera::tools
