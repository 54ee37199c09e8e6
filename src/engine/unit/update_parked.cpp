#include "engine/unit/update_parked.hpp"

#include <algorithm>

#include "kernels/table.hpp"
#include "tessera/base/moment_format.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {
namespace {

/// The part of `run` that lies in `piece`, with device addresses; no elements if there is none.
UpdateRun on_device(const UpdateRun& run, const BroughtPiece& piece) {
  const std::int64_t first = std::max(run.first, piece.first());
  const std::int64_t end = std::min(run.first + run.update.elems, piece.first() + piece.elems());
  const std::int64_t from = first - run.first;
  UpdateRun part = run;
  if (end <= first) {
    part.update.elems = 0;
    return part;
  }
  kernels::UpdateRun& update = part.update;
  update = run.update.slice(from, end - first);
  update.master = piece.on_device(update.master);
  update.remainder = piece.on_device(update.remainder);
  update.first.data = piece.on_device(update.first.data);
  update.second.data = piece.on_device(update.second.data);
  for (kernels::QuantisedMoment* const moment :
       {&update.first_quantised, &update.second_quantised}) {
    moment->values = piece.on_device(moment->values);
    moment->scales = piece.on_device(moment->scales);
  }
  for (std::span<float>& state : part.states) {
    const auto count = static_cast<std::size_t>(update.elems);
    state = {piece.on_device(state.data() + from), count};
  }
  return part;
}

}  // namespace

UpdateParked::UpdateParked(const UnitPlan& plan, ParameterHome& parameters,
                           const GradientHome& gradients, const Masters& masters)
    : UpdateHome{plan},
      world_{masters.world},
      host_{masters.world},
      parameters_{parameters},
      gradients_{gradients},
      ring_{masters.ring},
      part_{part_of(masters.kind)} {
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    View& view = masters_.emplace_back(masters_of(plan, s, masters.kind));
    if (view.elems > 0) { view.data = masters.arena.take(view.bytes()); }
  }
}

UpdatedSegment UpdateParked::updated(std::size_t segment) const {
  const Owned& owned = plan().owned[segment];
  const std::int64_t first = owned.updates.first - owned.parameters.first;
  const View own = parameters_.resident(segment).slice(first, owned.updates.elems);
  return {weights_of(own, masters_[segment], part_, /*on_host=*/true),
          gradients_.resident(segment)};
}

std::vector<ParkedArray> UpdateParked::arrays_of(std::size_t segment) const {
  std::vector<ParkedArray> arrays;
  const View masters = masters_[segment];
  if (masters.elems > 0) {
    arrays.push_back({static_cast<std::byte*>(masters.data), size_of(masters.dtype)});
  }
  for (const StateArray& state : states(segment)) {
    arrays.push_back({static_cast<std::byte*>(state.values), state.element_bytes});
    if (state.scales == nullptr) { continue; }
    arrays.push_back({reinterpret_cast<std::byte*>(state.scales), sizeof(float), kMomentBlock});
  }
  return arrays;
}

std::size_t UpdateParked::piece_bytes() const {
  std::size_t most = 0;
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    const std::int64_t elems = std::min(plan().owned[s].updates.elems, StateRing::kPieceElems);
    most = std::max(most, BroughtPiece::bytes_of(arrays_of(s), elems));
  }
  return most;
}

void UpdateParked::update(const UpdateRule& rule, UpdateRuns& /*together*/) {
  const Stream stream = host_.update_stream();
  await_copies(stream);  // copies back run after that stream
  for (std::size_t s = 0; s < plan().segments(); ++s) {
    if (plan().owned[s].updates.elems > 0) { update_segment(s, rule); }
  }
  parameters_.arrive(stream);
}

void UpdateParked::update_segment(std::size_t segment, const UpdateRule& rule) {
  const auto launch = [&](const BroughtPiece& piece, Stream stream) {
    std::vector<UpdateRun> parts;
    for (const UpdateRun& run : runs()) {
      if (run.segment != segment) { continue; }
      const UpdateRun part = on_device(run, piece);
      if (part.update.elems > 0) { parts.push_back(part); }
    }
    if (parts.empty()) { return; }
    UpdateRuns together;
    for (const UpdateRun& part : parts) { together.push_back(&part); }
    launch_updates(world::kernels_of(world_), together, rule.optimizer, rule.learning_rate,
                   rule.on_device, stream);
  };
  const std::vector<ParkedArray> arrays = arrays_of(segment);
  const std::int64_t elems = plan().owned[segment].updates.elems;
  if (arrays.empty()) {  // fp32 parameters and a rule without state
    const BroughtPiece all{arrays, 0, elems, nullptr};
    host_.update([&](Stream stream) { launch(all, stream); }, plan().name);
    return;
  }
  for (std::int64_t at = 0; at < elems; at += StateRing::kPieceElems) {
    ring_.pass(arrays, at, std::min(StateRing::kPieceElems, elems - at), plan().name, launch);
  }
}

Stream UpdateParked::state_writer() const {
  return host_.copy_stream(world::CopyKind::states);
}

}  // namespace tessera::engine
