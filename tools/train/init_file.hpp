#pragma once

#include <string>
#include <vector>

#include "tessera/checkpoint/weights.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The weights that --init names. For a run's folder with checkpoints of steps: the newest whole
/// one.
struct InitPath {
  std::string path;                        ///< the checkpoint, or `asked` itself
  std::vector<std::string> messages = {};  ///< messages for the user, one line each
};
/// Errors: as for newest_checkpoint.
[[nodiscard]] InitPath find_init(const std::string& asked);

/// A hash of the sizes and bytes of its files; of a file above 256 MiB, of 256 MiB in evenly spaced
/// blocks. Empty if `path` is. FormatError if it cannot be read.
[[nodiscard]] std::string fingerprint_of_weights(const std::string& path);

/// How --init's file calls the tensors of a GPT-2.
struct InitNames {
  std::string prefix = {};     ///< of its tensors' names: empty, or "transformer."
  bool table_is_head = false;  ///< the tied token table is there as "lm_head.weight" only
};

/// What --init's file holds for a model.
struct InitFile {
  InitNames names;
  std::vector<std::string> tensors;  ///< its tensors that the model has
  std::vector<std::string> extra;    ///< its tensors that the model does not have
};
/// Reads only the header. FormatError if it cannot be read, or has another number of layers.
[[nodiscard]] InitFile examine_init(const std::string& path, const nn::DecoderConfig& config);

/// If `path` is a checkpoint or a file in one, reads its weights and compares their checksums.
/// FormatError that names file, tensor and bytes of the damage.
void verify_init(const std::string& path);

/// Reads all that the model takes, and reports on standard error what a user should know: other
/// names, tensors that are ignored, values that are not finite.
void tell_of_init(const std::string& path, const InitFile& file);

/// Maps a parameter's name to its name in a file that uses `names`.
[[nodiscard]] WeightName weight_name_in(const InitNames& names);

/// Each process of a job reads its own copy of --init. ConfigError that names the ranks unless all
/// `fingerprints`, by rank, are equal: otherwise copies of the weights would differ from the first
/// step on, or shards would come from different models.
void check_same_init(const Settings& settings, const std::vector<std::string>& fingerprints);

}  // namespace tessera::tools
