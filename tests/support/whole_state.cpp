#include "support/whole_state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace tessera::test {
namespace {

std::string name_of(const engine::StateTensorInfo& tensor) {
  static const std::vector<std::string> kinds{"weight", "master", "remainder", "moment", "scales"};
  return tensor.parameter->full_name() + " " + kinds.at(static_cast<std::size_t>(tensor.kind)) +
         " " + std::to_string(tensor.index);
}

}  // namespace

void WholeState::declare(const engine::TrainingState& state) {
  const engine::StateCounters now = state.counters();
  const std::lock_guard lock{mutex};
  std::vector<std::string> names;
  for (const engine::StateTensorInfo& info : state.tensors()) {
    names.push_back(name_of(info));
    Tensor& tensor = tensors[names.back()];
    const auto elems = static_cast<std::size_t>(info.elems);
    tensor.bytes.resize(elems * engine::bytes_of(info.format));
    tensor.writers.resize(elems);
  }
  if (order.empty()) { order = names; }
  EXPECT_EQ(order, names) << "ranks list different tensors";
  counters = now;
}

void WholeState::take(const engine::TrainingState& state, const engine::StatePiece& piece,
                      const std::byte* from) {
  const engine::StateTensorInfo& info = state.tensors()[piece.tensor];
  const std::size_t size = engine::bytes_of(info.format);
  const std::lock_guard lock{mutex};
  Tensor& tensor = tensors.at(name_of(info));
  piece.for_each_run([&](const Range& whole, std::int64_t at) {
    for (std::int64_t i = whole.first; i < whole.end(); ++i) {
      ++tensor.writers.at(static_cast<std::size_t>(i));
    }
    std::memcpy(&tensor.bytes.at(static_cast<std::size_t>(whole.first) * size),
                from + static_cast<std::size_t>(at) * size,
                static_cast<std::size_t>(whole.elems) * size);
  });
}

std::string WholeState::not_partitioned() const {
  std::string names;
  for (const auto& [name, tensor] : tensors) {
    const bool once = std::ranges::all_of(tensor.writers, [](int count) { return count == 1; });
    if (!once) { names += name + "; "; }
  }
  return names;
}

std::string difference(const WholeState& a, const WholeState& b) {
  std::string names = a.order == b.order ? "" : "the list of tensors; ";
  for (const auto& [name, tensor] : a.tensors) {
    const auto other = b.tensors.find(name);
    if (other == b.tensors.end() || other->second.bytes != tensor.bytes) { names += name + "; "; }
  }
  return names + (a.counters == b.counters ? "" : "counters");
}

StateSnapshot::StateSnapshot(World& world, engine::TrainingState& state) : state_{state} {
  for (std::size_t u = 0; u < state.units(); ++u) {
    std::vector<void*> to;
    for (const engine::StatePiece& piece : state.share_of(u)) {
      arrays_.push_back(
          world.allocate_host(Category::workspace, state.bytes_of_piece(piece), "snapshot"));
      to.push_back(arrays_.back().data());
    }
    copied_.push_back(world.device().make_event());
    state.copy_out(u, to, copied_.back().get());
  }
}

void StateSnapshot::wait() {
  std::thread{[this] {
    for (const OwnedEvent& event : copied_) { event.get().wait(); }
  }}.join();
}

void StateSnapshot::give_to(WholeState& whole) const {
  for (std::size_t i = 0; i < arrays_.size(); ++i) {
    whole.take(state_, state_.share()[i], static_cast<const std::byte*>(arrays_[i].data()));
  }
}

void save_state(World& world, ShardedModel& model, WholeState& whole) {
  engine::TrainingState state{model};
  whole.declare(state);
  StateSnapshot snapshot{world, state};
  snapshot.wait();
  snapshot.give_to(whole);
}

void load_state(ShardedModel& model, const WholeState& whole) {
  engine::TrainingState state{model};
  state.begin_write();
  for (const engine::StatePiece& piece : state.share()) {
    const engine::StateTensorInfo& info = state.tensors()[piece.tensor];
    const WholeState::Tensor& tensor = whole.tensors.at(name_of(info));
    const std::size_t size = engine::bytes_of(info.format);
    std::vector<std::byte> mine(state.bytes_of_piece(piece));
    piece.for_each_run([&](const Range& run, std::int64_t at) {
      std::memcpy(mine.data() + static_cast<std::size_t>(at) * size,
                  tensor.bytes.data() + static_cast<std::size_t>(run.first) * size,
                  static_cast<std::size_t>(run.elems) * size);
    });
    const std::int64_t half = piece.elems.elems / 2;
    state.write(piece, 0, half, mine.data());
    state.write(piece, half, piece.elems.elems - half,
                mine.data() + static_cast<std::size_t>(half) * size);
  }
  state.end_write(whole.counters);
}

}  // namespace tessera::test
