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
  for (std::int64_t i = piece.elems.first; i < piece.elems.end(); ++i) {
    ++tensor.writers.at(static_cast<std::size_t>(i));
  }
  std::memcpy(&tensor.bytes.at(static_cast<std::size_t>(piece.elems.first) * size), from,
              static_cast<std::size_t>(piece.elems.elems) * size);
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
    const auto at = [&](std::int64_t elem) {
      return tensor.bytes.data() +
             static_cast<std::size_t>(piece.elems.first + elem) * engine::bytes_of(info.format);
    };
    const std::int64_t half = piece.elems.elems / 2;
    state.write(piece, 0, half, at(0));
    state.write(piece, half, piece.elems.elems - half, at(half));
  }
  state.end_write(whole.counters);
}

}  // namespace tessera::test
