#pragma once

#include <string>
#include <vector>

#include "settings.hpp"

namespace tessera::tools {

/// A hash of its size and, where it is larger than 256 MiB, of as many of its bytes at even
/// distances, else of all; empty if `path` is. FormatError if it cannot be read.
[[nodiscard]] std::string fingerprint_of_file(const std::string& path);

/// Each process of a job reads --init where it runs. ConfigError that names the ranks unless
/// `fingerprints`, by rank, are the same: copies of the weights would differ from the first step
/// on, and shards be of several models.
void check_same_init(const Settings& settings, const std::vector<std::string>& fingerprints);

}  // namespace tessera::tools
