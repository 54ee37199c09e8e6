#pragma once

#include <string>
#include <vector>

#include "tessera/checkpoint/weights.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// What --init names: of a run's folder, one with steps of checkpoints, the newest that is whole.
struct InitPath {
  std::string path;                        ///< the checkpoint, or `asked` itself
  std::vector<std::string> messages = {};  ///< what the user is told, each a line
};
/// Errors: those of newest_checkpoint.
[[nodiscard]] InitPath find_init(const std::string& asked);

/// A hash of the sizes and bytes of its files; of a file above 256 MiB, of 256 MiB at even
/// distances. Empty if `path` is. FormatError if it cannot be read.
[[nodiscard]] std::string fingerprint_of_weights(const std::string& path);

/// What --init's file holds for a model.
struct InitFile {
  std::string prefix;                ///< of its tensors' names: none, or "transformer."
  std::vector<std::string> tensors;  ///< those of them that the model takes
  std::vector<std::string> extra;    ///< those that it has not
};
/// Reads the header alone. FormatError if it cannot be read, or holds another number of layers.
[[nodiscard]] InitFile examine_init(const std::string& path, const nn::GPTConfig& config);

/// Reads the weights of a checkpoint, if `path` is one or a file in one, and compares their
/// checksums. FormatError that names file, tensor and bytes of what is damaged.
void verify_init(const std::string& path);

/// Reads all that the model takes and says on standard error what a user would want to know: a
/// prefix, tensors that are left out, values that are not finite.
void tell_of_init(const std::string& path, const InitFile& file);

/// Names as a file has them whose names begin with `prefix`.
[[nodiscard]] WeightName weight_name_after(const std::string& prefix);

/// Each process of a job reads --init where it runs. ConfigError that names the ranks unless
/// `fingerprints`, by rank, are the same: copies of the weights would differ from the first step
/// on, and shards be of several models.
void check_same_init(const Settings& settings, const std::vector<std::string>& fingerprints);

}  // namespace tessera::tools
