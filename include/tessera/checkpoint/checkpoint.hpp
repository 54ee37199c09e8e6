#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/shape.hpp"
#include "tessera/base/view.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// Neighbouring elements in device memory, not owned, of any dtype of safetensors files: those of a
/// View, and also integers and booleans.
struct BufferView {
  void* data = nullptr;       ///< the first element
  std::int64_t elems = 0;     ///< the number of elements
  std::string dtype = "F32";  ///< the type in files: "I64", "BOOL", "F64", ...

  /// A view of no elements.
  BufferView() = default;
  /// The elements of a View.
  BufferView(View view);
  /// `elems_` elements of type `dtype_` at `data_`.
  BufferView(void* data_, std::int64_t elems_, DType dtype_ = DType::fp32);
  /// `elems_` elements at `data_` of the type that files call `dtype_`.
  BufferView(void* data_, std::int64_t elems_, std::string dtype_);
};

/// A buffer of the trainer in device memory that a save writes and a load fills, such as running
/// statistics, a count or a mask. Every rank has the same values. They keep their type.
struct CheckpointBuffer {
  std::string name;   ///< unique among the buffers of a checkpoint
  Shape shape;        ///< its extents
  BufferView values;  ///< its memory: shape.elems() elements
};

/// The trainer's state beside the model, which a resume restores. All ranks give the same values.
struct CheckpointExtras {
  /// Values by name: the position in the data, seeds, the schedule. Names are not empty.
  std::map<std::string, std::string> values = {};
  /// Buffers; rank 0 writes them.
  std::vector<CheckpointBuffer> buffers = {};
};

/// How a checkpoint is written.
struct SaveOptions {
  /// Returns the name of a parameter's tensor in the files. Empty: "unit.name". Names are unique.
  WeightName name = {};
  /// The most bytes of tensors in a file, at least 1; larger tensors have a file of their own.
  std::uint64_t shard_bytes = std::uint64_t{5} << 30;
  /// The program that wrote the checkpoint, such as its command line, for provenance.json.
  std::string command = {};
};

/// How a checkpoint is loaded.
struct LoadOptions {
  /// Returns the name of a parameter's tensor in the files, as SaveOptions::name.
  WeightName name = {};
  /// The parts of a checkpoint that are loaded.
  enum class What : std::uint8_t {
    everything,  ///< weights, optimizer state, counters and extras
    weights,     ///< weights only; the optimizer starts anew
  };
  What what = What::everything;  ///< the parts that are loaded
  /// Returns whether the parameter with this name in the files is loaded. It is used with
  /// What::weights. Empty: all are loaded.
  std::function<bool(const std::string& name)> only = {};
  /// Whether moments of another format than the model's are converted. If false, such a checkpoint
  /// is refused with ConfigError.
  bool convert_moments = false;
  /// Whether weights may be loaded although the model has some that the files lack, or the reverse;
  /// LoadReport names them. If false, those that `only` loads are refused with FormatError before
  /// the model changes. It is used with What::weights: a whole checkpoint is never loaded in part.
  bool allow_partial = true;
};

/// The result of a load.
struct LoadReport {
  std::int64_t step = 0;                      ///< the step of the checkpoint
  std::map<std::string, std::string> values;  ///< CheckpointExtras::values
  std::vector<std::string> missing;           ///< weights that the model has and the files lack
  std::vector<std::string> unexpected;        ///< weights that the files have and the model lacks
};

/// The result of a save. It converts to the path.
struct SaveReport {
  std::filesystem::path path;  ///< the folder of the checkpoint, as an absolute path
  /// The reason if `model.safetensors` in the folder of the run does not have the checkpoint's
  /// weights; otherwise empty. The checkpoint itself is complete.
  std::string warning = {};
  std::int64_t step = 0;  ///< the step of the checkpoint

  /// Returns the path.
  operator const std::filesystem::path&() const noexcept { return path; }
};

/// *Collective.* Writes the whole training state of `model` to the folder `folder`/step-00000012,
/// for step 12, and returns its path. The state is weights, optimizer state, counters and `extras`,
/// in a format that depends neither on ranks, strategy and mesh nor on the device
/// (docs/checkpoints.md). Each rank writes its share. The folder appears complete or not at all. It
/// is called between steps, after optimize_with.
///
/// Errors: ContractError on all ranks for calls out of order, names that are not unique, and ranks
///         that give other values, buffers or options than rank 0. ConfigError if the folder of the
///         step holds a checkpoint of another model (its weights have other names or shapes), or if
///         `folder` holds a later one, unless the model was loaded from `folder`: newest_checkpoint
///         would take that for the newest. Error on all ranks, with the reason of the first rank
///         that failed. Existing checkpoints do not change then.
SaveReport save(ShardedModel& model, const std::filesystem::path& folder,
                const CheckpointExtras& extras = {}, const SaveOptions& options = {});

/// *Collective.* Fills `model` and the buffers of `extras` from a checkpoint. `path` is the folder
/// of a step, or of one of its parts if all parts are in one folder. The model may have any number
/// of ranks, strategy, mesh, precision and device. It is called between steps, and after
/// optimize_with unless only weights are loaded. Each byte is read by one rank and sent to the
/// others. Checksums of everything that is read are compared.
///
/// Errors: FormatError on all ranks with the file, tensor and offset of the damage. ConfigError for
///         a checkpoint of another model or optimizer and for moments of another format. After an
///         error the model's state is undefined, and it can be loaded again.
LoadReport load(ShardedModel& model, const std::filesystem::path& path,
                const CheckpointExtras& extras = {}, const LoadOptions& options = {});

/// The description of a checkpoint in its manifest.
struct CheckpointSummary {
  std::int64_t step = 0;                      ///< the step of the checkpoint
  std::map<std::string, std::string> state;   ///< counters and formats, by their manifest names
  std::map<std::string, std::string> values;  ///< CheckpointExtras::values
};
/// Reads the manifest in `path`, the folder of a step, and checks that all files exist with their
/// sizes. Throws FormatError if they do not.
[[nodiscard]] CheckpointSummary summary_of(const std::filesystem::path& path);

/// Reads all weights of the checkpoint in `path`, the folder of a step, once, and compares their
/// checksums. The files of masters and optimizer state may be damaged. Throws FormatError with the
/// file, tensor and bytes of the damage.
void verify_weights(const std::filesystem::path& path);

/// The newest complete checkpoint of a run.
struct NewestCheckpoint {
  /// The folder of its step, for `load`. If machines have saved parts, which are in the run's
  /// folder, it is the name that the joined folder would have.
  std::filesystem::path path;
  std::int64_t step = 0;                  ///< the step of the checkpoint
  std::vector<std::string> damaged = {};  ///< newer checkpoints, each with its damage
  std::vector<std::filesystem::path> damaged_paths = {};  ///< their folders, in the same order
  /// Newer steps of which some part exists on no machine, each with what is missing.
  std::vector<std::string> incomplete = {};
};

/// The parts of checkpoints that the machines of a job have, each in a folder of its own.
struct SeenParts {
  /// One part, seen by one rank.
  struct Part {
    int rank = 0;           ///< the rank that sees it
    std::int64_t step = 0;  ///< the step of its checkpoint
    std::string save;       ///< equal in all parts of one save
    int part = 0;           ///< its number, from 0
    int parts = 1;          ///< the number of parts of the save
  };
  std::vector<Part> all = {};  ///< by rank
  int machines = 1;            ///< the number of machines that have looked
};
/// *Collective.* Returns the parts that the ranks see in their `folder`, the same on all ranks. A
/// folder that cannot be read counts as empty.
[[nodiscard]] SeenParts seen_parts(World& world, const std::filesystem::path& folder);

/// What newest_checkpoint looks for.
struct NewestOptions {
  LoadOptions::What what = LoadOptions::What::everything;  ///< what is to be loaded
  /// Only checkpoints of earlier steps count.
  std::int64_t before = std::numeric_limits<std::int64_t>::max();
  /// What the other machines have; null if this process knows of no other.
  const SeenParts* seen = nullptr;
};
/// Returns the newest checkpoint in `folder` whose manifest agrees with the files of what is to be
/// loaded: all of them, or those of the weights. `load` compares checksums; this call does not. The
/// paths in the result are relative if `folder` is.
///
/// A newer step of which parts are missing in `folder` is no damage: the missing parts may be on
/// other machines. It is passed over only if `seen` shows that they are on none, and as many
/// machines have looked as the save has parts.
///
/// Errors: ConfigError that lists the folder's contents if it has no whole checkpoint, and that
///         names the missing parts of a newer step that is not passed over. FormatError with the
///         damage if all are damaged.
[[nodiscard]] NewestCheckpoint newest_checkpoint(const std::filesystem::path& folder,
                                                 const NewestOptions& options);
/// The same for a process that knows of no other machine.
[[nodiscard]] NewestCheckpoint newest_checkpoint(
    const std::filesystem::path& folder, LoadOptions::What what = LoadOptions::What::everything);

}  // namespace tessera
