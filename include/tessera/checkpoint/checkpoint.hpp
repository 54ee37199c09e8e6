#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/shape.hpp"
#include "tessera/base/view.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// Neighbouring elements in device memory, not owned, of a dtype that safetensors files have: those
/// of a View, and integers and truth values as well.
struct BufferView {
  void* data = nullptr;       ///< the first element
  std::int64_t elems = 0;     ///< how many there are
  std::string dtype = "F32";  ///< as in the files: "I64", "BOOL", "F64", ...

  BufferView() = default;
  /// The elements of a View.
  BufferView(View view);
  BufferView(void* data_, std::int64_t elems_, DType dtype_ = DType::fp32);
  BufferView(void* data_, std::int64_t elems_, std::string dtype_);
};

/// A buffer of the trainer's own in device memory that a checkpoint holds and a load fills, such as
/// running statistics, a count or a mask. Every rank holds the same values. They are stored as what
/// they are.
struct CheckpointBuffer {
  std::string name;   ///< unique among the buffers of a checkpoint
  Shape shape;        ///< its extents
  BufferView values;  ///< its memory: shape.elems() elements
};

/// What a trainer keeps beside its model and wants back after a resume. All ranks give the same.
struct CheckpointExtras {
  /// Values by name: the position in the data, seeds, the schedule. Names are not empty.
  std::map<std::string, std::string> values = {};
  /// Buffers. Rank 0 writes them.
  std::vector<CheckpointBuffer> buffers = {};
};

/// How a checkpoint is written.
struct SaveOptions {
  /// The name of a parameter's tensor in the files. The default is "unit.name". Names are unique.
  WeightName name = {};
  /// The most bytes of tensors in a file, at least 1; larger tensors have a file of their own.
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  /// What provenance.json says of the program that wrote the checkpoint, such as its command line.
  std::string command = {};
};

/// How a checkpoint is loaded.
struct LoadOptions {
  /// The name of a parameter's tensor in the files, as SaveOptions::name.
  WeightName name = {};
  /// Which parts are loaded.
  enum class What : std::uint8_t {
    everything,  ///< weights, optimizer state, counters and extras
    weights,     ///< weights alone; the optimizer starts anew
  };
  What what = What::everything;  ///< which parts are loaded
  /// Returns whether the parameter with this name in the files is loaded, for `weights`. Empty:
  /// all are.
  std::function<bool(const std::string& name)> only = {};
  /// Whether moments of another format than the model's are converted. If not, such a checkpoint
  /// is refused with ConfigError.
  bool convert_moments = false;
};

/// What a load found.
struct LoadReport {
  std::int64_t step = 0;                      ///< the step of the checkpoint
  std::map<std::string, std::string> values;  ///< CheckpointExtras::values
  std::vector<std::string> missing;           ///< weights that the model has and the files lack
  std::vector<std::string> unexpected;        ///< weights that the files have and the model lacks
};

/// What a save has done. It converts to the path.
struct SaveReport {
  std::filesystem::path path;  ///< the folder of the checkpoint
  /// Why `model.safetensors` in the folder of the run is not the checkpoint's weights; empty if it
  /// is. The checkpoint itself is whole.
  std::string warning = {};

  /// Returns the path.
  operator const std::filesystem::path&() const noexcept { return path; }
};

/// *Collective.* Writes the whole training state of `model` to the folder `folder`/step-00000012,
/// for step 12, and returns its path: weights, optimizer state, counters and `extras`, in one
/// format that depends on neither ranks, strategy, mesh nor device (docs/checkpoints.md). Each rank
/// writes its share. The folder is there whole or not at all. Between steps, after optimize_with.
///
/// Errors: ContractError on all ranks for calls out of order and names that are not unique. Error
///         on all ranks, with the reason of the first rank that failed; what was there before
///         stays.
SaveReport save(ShardedModel& model, const std::filesystem::path& folder,
                const CheckpointExtras& extras = {}, const SaveOptions& options = {});

/// *Collective.* Fills `model` and the buffers of `extras` from a checkpoint: `path` is the folder
/// of a step, or of a part of it where all parts lie beside each other. The model may have any
/// number of ranks, strategy, mesh, precision and device. Between steps; after optimize_with unless
/// weights alone are loaded. Each byte is read by one rank and handed on. Checksums of all that is
/// read are compared.
///
/// Errors: FormatError on all ranks that names file, tensor and offset of what is damaged.
///         ConfigError for a checkpoint of another model or optimizer and for moments of another
///         format. After an error the model's state is undefined, and it can be loaded again.
LoadReport load(ShardedModel& model, const std::filesystem::path& path,
                const CheckpointExtras& extras = {}, const LoadOptions& options = {});

/// What a checkpoint says of itself.
struct CheckpointSummary {
  std::int64_t step = 0;                      ///< its step
  std::map<std::string, std::string> state;   ///< counters and formats, as the manifest has them
  std::map<std::string, std::string> values;  ///< CheckpointExtras::values
};
/// Returns what the manifest in `path`, the folder of a step, says. Checks as opening a checkpoint
/// does: that all files are there with their sizes. Throws FormatError if they are not.
[[nodiscard]] CheckpointSummary summary_of(const std::filesystem::path& path);

/// Reads all weights of a checkpoint, of `path`, the folder of a step, once, and compares their
/// checksums. Throws FormatError that names file, tensor and bytes of what is damaged.
void verify_weights(const std::filesystem::path& path);

/// The newest checkpoint of a run that is whole.
struct NewestCheckpoint {
  /// The folder of its step: `load` takes it. Where machines have saved parts, which lie in the
  /// run's folder, the name that the joined folder would have.
  std::filesystem::path path;
  std::int64_t step = 0;                  ///< its step
  std::vector<std::string> damaged = {};  ///< newer ones, each with what is wrong with it
  std::vector<std::filesystem::path> damaged_paths = {};  ///< of them, in the same order
};
/// Returns the newest checkpoint in `folder` whose manifest and files agree; checksums are compared
/// when it is loaded. Throws Error that names what was found if there is none.
[[nodiscard]] NewestCheckpoint newest_checkpoint(const std::filesystem::path& folder);

}  // namespace tessera
