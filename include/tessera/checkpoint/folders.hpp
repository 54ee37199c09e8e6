#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {

/// What a folder is, by its files. A stray file of another kind changes nothing.
enum class FolderKind : std::uint8_t {
  checkpoint,  ///< the folder of a step: it has manifest.json
  part,        ///< one machine's part of a checkpoint: it has part.json, and no folders of steps
  other        ///< such as a run's
};
/// Returns what `folder` is; `other` if it is missing.
[[nodiscard]] FolderKind folder_kind(const std::filesystem::path& folder);

/// A checkpoint in the folder of a run, or a machine's part of one.
struct CheckpointFolder {
  std::filesystem::path path;  ///< its folder
  std::int64_t step = 0;       ///< its step, by its name
  std::optional<int> part;     ///< the number of the part; none for a whole checkpoint
  std::filesystem::path seal;  ///< the file that was written last: manifest.json or part.json
};
/// Returns the checkpoints in `folder`, the folder of a run, by their names: the whole ones in the
/// order of their steps, then the parts. Nothing is verified. There are none in a missing folder.
/// Throws Error if the folder cannot be listed.
[[nodiscard]] std::vector<CheckpointFolder> checkpoints_in(const std::filesystem::path& folder);

/// A checkpoint for CheckpointReader.
struct WholeCheckpoint {
  std::filesystem::path path;        ///< the folder of its step
  std::vector<std::string> damaged;  ///< newer checkpoints of the run, each with its damage
};
/// Returns the checkpoint at `path`: `path` itself if it is the folder of a step, otherwise the
/// newest one of the run (newest_checkpoint). Throws ConfigError if `path` is one machine's part,
/// if the newest checkpoint is in parts that are not merged, and as newest_checkpoint does.
[[nodiscard]] WholeCheckpoint whole_checkpoint(
    const std::filesystem::path& path, LoadOptions::What what = LoadOptions::What::everything);

/// What one machine holds of a checkpoint if machines share no file system.
struct PartSummary {
  std::int64_t step = 0;    ///< the step of the checkpoint
  int part = 0;             ///< its number, from 0
  int parts = 1;            ///< the number of parts of the save
  std::uint64_t bytes = 0;  ///< the bytes that it holds
};
/// Returns what the part in `folder` holds. Throws FormatError if it cannot be read.
[[nodiscard]] PartSummary summary_of_part(const std::filesystem::path& folder);
/// Reads the bytes of the part in `folder`, and compares checksums, headers and index files. Throws
/// FormatError that names the file, the tensor and the bytes of the first damaged block.
void verify_part(const std::filesystem::path& folder);

/// The parts of one save.
struct PartsOfSave {
  std::int64_t step = 0;                            ///< the step of the checkpoint
  std::uint64_t bytes = 0;                          ///< the size of the whole checkpoint
  std::vector<std::filesystem::path> folders = {};  ///< the parts, by number
  /// Newer saves that are not complete, the newest first: "step 15 is passed over: ...".
  std::vector<std::string> passed_over = {};
};
/// Returns the parts of the newest complete save in `paths`; if no save is complete, those of the
/// newest. Each path is a part, or the folder that a machine has saved to. A save is complete if
/// there is a part of each number; copies of a part count once.
///
/// Errors:  ConfigError for a path without parts, FormatError for a part that cannot be read,
///          ContractError for no paths.
/// Threads: any.
[[nodiscard]] PartsOfSave newest_parts(const std::vector<std::filesystem::path>& paths);
/// Joins the parts of a save to one checkpoint in `run`, the folder of a run, and returns its
/// folder: the bytes are those of a save on one file system. Reads everything three times: each
/// part before anything is written, each part to copy it, and the result. Calls `progress` with the
/// bytes copied since the last call. The checkpoint appears when all is copied, or not at all. If
/// the last reading finds damage, the checkpoint stays, and the error names the damage.
///
/// Errors:  FormatError for parts that do not make up a save, that overlap, and for damage;
///          ContractError for no folders. Otherwise as `save`.
/// Threads: one at a time for each `run`.
std::filesystem::path merge_parts(const PartsOfSave& parts, const std::filesystem::path& run,
                                  const std::function<void(std::uint64_t bytes)>& progress = {});

}  // namespace tessera
