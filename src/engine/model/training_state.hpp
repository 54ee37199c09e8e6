#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/device/device.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/shard/parameter_info.hpp"
#include "tessera/shard/ranges.hpp"
#include "tessera/shard/tensor_part.hpp"

namespace tessera::engine {

class Model;

/// What an array of the training state holds of a parameter.
enum class StateKind : std::uint8_t {
  weight,     ///< the parameter itself, in its compute dtype
  master,     ///< the fp32 master of a 16-bit parameter
  remainder,  ///< the lower 16 bits of the fp32 master of a bf16 parameter
  moment,     ///< a moment of the optimizer, or one state of a CustomOptimizer
  scales,     ///< the fp32 scales of a quantised moment: one for each kMomentBlock elements
};

/// How the elements of an array are encoded.
enum class StateFormat : std::uint8_t { fp32, bf16, fp16, u16, u8 };

/// Returns the bytes of one element: 4, 2 or 1.
[[nodiscard]] std::size_t bytes_of(StateFormat format) noexcept;

/// One logical tensor of the training state: an array of one parameter, without padding. It does
/// not depend on ranks, strategy, mesh or device. All ranks list the same tensors in the same
/// order.
struct StateTensorInfo {
  const ParameterInfo* parameter = nullptr;  ///< valid while the model lives
  StateKind kind{};
  int index = 0;         ///< of a moment and its scales, from 0
  StateFormat format{};  ///< of its elements
  /// As many elements as the parameter has; for `scales`, one for each block begun.
  std::int64_t elems = 0;
};

/// Elements of one tensor that lie end to end in this rank's memory. They are neighbours in the
/// rank's part of the tensor, which is the whole tensor unless the mesh's dimension `tensor` cuts
/// the parameter.
struct StatePiece {
  std::size_t tensor = 0;            ///< index in TrainingState::tensors
  std::size_t unit = 0;              ///< the unit that the parameter belongs to
  const TensorPart* part = nullptr;  ///< this rank's part of the parameter
  std::int64_t block = 1;            ///< elements of the parameter per element of the tensor
  Range elems;                       ///< elements of the rank's part of the tensor
  void* data = nullptr;              ///< in device memory, or in the host pool
  bool on_host = false;              ///< whether `data` is in the host pool

  /// Calls `visit(whole, at)` for each run of elements `some`, counted within the piece, that lies
  /// end to end in the tensor: `whole` is the run in the tensor, `at` the position of its first
  /// element, counted from `some.first`. No two runs touch.
  template <class Visit>
  void for_each_run(const Range& some, const Visit& visit) const;
  /// The runs of the whole piece.
  template <class Visit>
  void for_each_run(const Visit& visit) const {
    for_each_run({0, elems.elems}, visit);
  }
  /// Whether the whole piece lies end to end in the tensor, from element `first()` on.
  [[nodiscard]] bool is_one_run() const {
    int runs = 0;
    for_each_run([&](const Range& /*whole*/, std::int64_t /*at*/) { ++runs; });
    return runs <= 1;
  }
  /// The piece's first element, as an element of the tensor.
  [[nodiscard]] std::int64_t first() const {
    std::int64_t first = 0;
    for_each_run({0, std::min<std::int64_t>(elems.elems, 1)},
                 [&](const Range& whole, std::int64_t /*at*/) { first = whole.first; });
    return first;
  }
};

template <class Visit>
void StatePiece::for_each_run(const Range& some, const Visit& visit) const {
  const std::int64_t first = (elems.first + some.first) * block;
  const std::int64_t end = std::min((elems.first + some.end()) * block, part->elems());
  Range run;
  std::int64_t run_at = first;
  const auto finish = [&] {
    if (run.elems == 0) { return; }
    visit(Range{run.first / block, (run.elems + block - 1) / block}, (run_at - first) / block);
  };
  part->for_each_run({first, std::max<std::int64_t>(end - first, 0)},
                     [&](const Range& next, std::int64_t at) {
                       if (run.elems > 0 && run.end() == next.first) {
                         run.elems += next.elems;
                         return;
                       }
                       finish();
                       run = next;
                       run_at = at;
                     });
  finish();
}

/// The numbers of the training state on which all ranks agree.
struct StateCounters {
  std::int64_t steps = 0;    ///< steps made, including skipped ones
  std::int64_t updates = 0;  ///< updates applied: t of Adam
  float loss_scale = 1.0F;   ///< the scale of the next gradients
  std::int64_t good_steps = 0;
  std::int64_t skipped_in_a_row = 0;
  std::int64_t skipped = 0;

  friend bool operator==(const StateCounters&, const StateCounters&) = default;
};

/// The whole training state of a model between steps, as logical tensors, and the elements of them
/// that this rank reads and writes: its share.
///
/// Each element of each tensor is in the share of exactly one rank, under every strategy: ranks
/// that hold copies divide them. Under dp rank 0 has everything. If all ranks along `tensor` hold a
/// copy, the first one has it; if several places along `pipe` do, the first place has it. Cuts
/// within a rank's part of a tensor lie at multiples of 64 elements of a weight, master, remainder
/// or moment.
///
/// The tensors are those that the model has when this object is made: weights only for inference,
/// masters or remainders too for training, and moments from optimize_with on.
///
/// Order:  made and used between steps of a materialized model; ContractError otherwise.
///         Make another one after optimize_with.
/// Memory: lists only; the model outlives it.
class TrainingState {
 public:
  /// `call`: what the user has called, for errors.
  explicit TrainingState(ShardedModel& model, std::string call = "the training state");
  /// Waits for copies in flight; later updates wait for none.
  ~TrainingState();
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;

  /// In registration order, without aliases. Each parameter has its weight, its master or
  /// remainder, then each moment with its scales.
  [[nodiscard]] const std::vector<StateTensorInfo>& tensors() const noexcept { return tensors_; }
  /// This rank's share, ordered by unit, then by tensor.
  [[nodiscard]] const std::vector<StatePiece>& share() const noexcept { return share_; }
  /// Bytes of a piece.
  [[nodiscard]] std::size_t bytes_of_piece(const StatePiece& piece) const noexcept;
  /// The pieces of `unit` in `share`.
  [[nodiscard]] std::span<const StatePiece> share_of(std::size_t unit) const;
  /// The bytes that suffice for the share of any rank, plus `beside` bytes for each piece. Equal on
  /// all ranks at one place along `tensor` and `pipe`, except under dp, where rank 0 has
  /// everything. So memory planned for one rank is planned for all.
  [[nodiscard]] std::size_t most_share_bytes(std::size_t beside) const;
  [[nodiscard]] std::size_t units() const noexcept { return first_of_unit_.size() - 1; }
  /// Whether the model has an optimizer, and hence moments and an update count.
  [[nodiscard]] bool has_optimizer() const noexcept;
  /// The optimizer's name: "AdamW", "Adam", "Lion", "SGD", or a CustomOptimizer's. Empty without
  /// one.
  [[nodiscard]] std::string optimizer_name() const;

  /// Waits for the last step's outcome and returns the counters.
  [[nodiscard]] StateCounters counters() const;

  // Saving.

  /// Enqueues copies of this rank's share of `unit` to the host memory `to`, one address for each
  /// piece of share_of(unit). They run after all updates enqueued so far, on streams of their own
  /// (world::CopyKind::snapshots, and another for the host pool). On CUDA, `to` must come from
  /// World::allocate_host, or the call waits. Records `copied` after the copies. The unit's next
  /// update waits for `copied`, which the caller owns, keeps valid until then or until this object
  /// ends, and does not record again before. Any thread may wait for it.
  ///
  /// A step in a CUDA graph (World::run_as_graph) starts, as a whole, after the copies enqueued
  /// before it. Throws ContractError within one.
  void copy_out(std::size_t unit, std::span<void* const> to, Event copied);

  // Loading.

  /// Throws ContractError if gradients wait for a step.
  void require_no_gradients() const;
  /// Waits until no enqueued work reads or writes the state. Call it before `write`.
  void begin_write();
  /// Writes elements [first, first + count) of the piece (counted within the piece) from host
  /// memory in the piece's format. Done on return.
  void write(const StatePiece& piece, std::int64_t first, std::int64_t count, const void* from);
  /// *Collective.* Call it after every rank has written its share: ranks that hold copies receive
  /// them, and parameters kept whole are gathered again (under dp when the next pass begins). Sets
  /// the counters; the update count only with an optimizer. Done on return. `report` and
  /// `previous_report` then cover steps made from here on.
  void end_write(const StateCounters& counters);

  /// The folder of the run whose checkpoint the model's whole state was loaded from; empty if there
  /// is none.
  [[nodiscard]] const std::string& loaded_run() const noexcept;
  void set_loaded_run(std::string folder);

 private:
  void list_unit(std::size_t unit);

  Model& model_;
  std::string call_;
  std::vector<StateTensorInfo> tensors_;
  std::vector<StatePiece> share_;
  std::vector<std::size_t> first_of_unit_;  // index into share_; the last entry is its size
  OwnedEvent mark_;
  bool copies_ = false;  // whether copies were enqueued
};

}  // namespace tessera::engine
