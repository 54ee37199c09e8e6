#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/model/training_state.hpp"
#include "tessera/world/world.hpp"

namespace tessera::test {

/// The training state of a job, assembled in memory from all ranks' shares. Any rank's thread may
/// call.
struct WholeState {
  struct Tensor {
    std::vector<std::byte> bytes;
    std::vector<int> writers;  ///< number of writes, by element
  };
  std::mutex mutex;
  std::map<std::string, Tensor> tensors;  ///< keys like "unit.parameter moment 0"
  std::vector<std::string> order;         ///< the order in which all ranks list them
  engine::StateCounters counters;

  /// Adds a rank's list of tensors and its counters.
  void declare(const engine::TrainingState& state);
  /// Adds a rank's piece.
  void take(const engine::TrainingState& state, const engine::StatePiece& piece,
            const std::byte* from);
  /// The tensors with an element that no rank, or more than one, added.
  [[nodiscard]] std::string not_partitioned() const;
};

/// The differences in any bit; empty if none.
[[nodiscard]] std::string difference(const WholeState& a, const WholeState& b);

/// Starts copies of a rank's share, which may still run when the constructor returns. `state`
/// outlives it.
class StateSnapshot {
 public:
  StateSnapshot(World& world, engine::TrainingState& state);
  /// Call on a thread other than the rank's.
  void wait();
  /// Call after `wait`.
  void give_to(WholeState& whole) const;

 private:
  engine::TrainingState& state_;
  std::vector<Buffer> arrays_;  // one per piece
  std::vector<OwnedEvent> copied_;
};

/// Adds this rank's share.
void save_state(World& world, ShardedModel& model, WholeState& whole);
/// *Collective.* Each rank takes its share, each piece in two parts. `whole` has the tensors of
/// `model`.
void load_state(ShardedModel& model, const WholeState& whole);

}  // namespace tessera::test
