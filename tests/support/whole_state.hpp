#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/model/training_state.hpp"
#include "tessera/world/world.hpp"

namespace tessera::test {

/// The training state of a job, put together in memory from all ranks' shares. Threads: ranks.
struct WholeState {
  struct Tensor {
    std::vector<std::byte> bytes;
    std::vector<int> writers;  ///< of each element
  };
  std::mutex mutex;
  std::map<std::string, Tensor> tensors;  ///< by "unit.parameter moment 0"
  std::vector<std::string> order;         ///< in which all ranks list them
  engine::StateCounters counters;

  /// Adds a rank's list of tensors and its counters.
  void declare(const engine::TrainingState& state);
  /// Adds a rank's piece.
  void take(const engine::TrainingState& state, const engine::StatePiece& piece,
            const std::byte* from);
  /// The tensors with an element that no rank, or more than one, has added.
  [[nodiscard]] std::string not_partitioned() const;
};

/// What differs to the bit; empty if nothing does.
[[nodiscard]] std::string difference(const WholeState& a, const WholeState& b);

/// Copies of a rank's share that are under way when the constructor returns. `state` outlives it.
class StateSnapshot {
 public:
  StateSnapshot(World& world, engine::TrainingState& state);
  /// Waits on a thread that is not the rank's.
  void wait();
  /// After `wait`.
  void give_to(WholeState& whole) const;

 private:
  engine::TrainingState& state_;
  std::vector<Buffer> arrays_;  // by piece
  std::vector<OwnedEvent> copied_;
};

/// Brings this rank's share.
void save_state(World& world, ShardedModel& model, WholeState& whole);
/// *Collective.* Each rank takes its share, in two parts a piece. The tensors of `model` are in
/// `whole`.
void load_state(ShardedModel& model, const WholeState& whole);

}  // namespace tessera::test
