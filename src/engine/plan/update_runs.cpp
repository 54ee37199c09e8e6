#include "engine/plan/update_runs.hpp"

#include <algorithm>
#include <utility>

namespace tessera::engine {
namespace {

/// The part of one segment that this rank updates.
struct Segment {
  const UnitPlan& unit;
  std::size_t index;
  const std::vector<ParameterRule>& rules;
  std::span<const Placement> placements;
  Range range;
  kernels::UpdateRun all;
  std::vector<float*> states;  // of a user's optimizer
};

// Padding joins the parameter before it: it holds zeros and keeps them.
std::vector<UpdateRun> runs_together(const Segment& segment) {
  std::vector<UpdateRun> runs;
  const std::int64_t end = segment.range.first + segment.range.elems;
  std::int64_t at = segment.range.first;
  for (std::size_t p = 0; p < segment.placements.size() && at < end; ++p) {
    const bool last = p + 1 == segment.placements.size();
    const std::int64_t next = last ? end : std::min(segment.placements[p + 1].first, end);
    if (next <= at) { continue; }
    const std::size_t parameter = segment.placements[p].parameter;
    const std::int64_t from = at - segment.range.first;
    const std::int64_t elems = next - at;
    at = next;
    if (segment.unit.frozen[parameter]) { continue; }
    const bool joins = !runs.empty() && runs.back().first + runs.back().update.elems == from;
    if (joins && runs.back().rule == segment.rules[parameter]) {
      runs.back().update.elems += elems;
    } else {
      runs.push_back({.update = segment.all.slice(from, elems),
                      .rule = segment.rules[parameter],
                      .parameter = &segment.unit.infos[parameter],
                      .segment = segment.index,
                      .first = from});
    }
  }
  return runs;
}

std::vector<UpdateRun> runs_apart(const Segment& segment) {
  std::vector<UpdateRun> runs;
  for (const Placement& placement : segment.placements) {
    const std::int64_t begin = std::max(placement.first, segment.range.first);
    const std::int64_t end =
        std::min(placement.first + placement.elems, segment.range.first + segment.range.elems);
    if (begin >= end || segment.unit.frozen[placement.parameter]) { continue; }
    const std::int64_t from = begin - segment.range.first;
    const ParameterInfo& info = segment.unit.infos[placement.parameter];
    const TensorPart& part = segment.unit.layout.part(placement.parameter);
    UpdateRun run{.update = segment.all.slice(from, end - begin),
                  .rule = segment.rules[placement.parameter],
                  .parameter = &info,
                  .part = &part,
                  .segment = segment.index,
                  .first = from};
    run.update.parameter_id = info.id;
    run.update.first_in_parameter = part.elems_before() + begin - placement.first;
    for (float* const state : segment.states) {
      run.states.emplace_back(state + from, static_cast<std::size_t>(end - begin));
    }
    runs.push_back(std::move(run));
  }
  return runs;
}

}  // namespace

UpdateLayout::UpdateLayout(const Optimizer& optimizer, const OptimizerOptions& options)
    : options_{options},
      arrays_{static_cast<std::size_t>(state_count(optimizer))},
      custom_{std::holds_alternative<CustomOptimizer>(optimizer)},
      quantised_{options.moments == MomentFormat::int8} {}

std::size_t UpdateLayout::state_bytes(const UnitPlan& unit) const {
  std::size_t bytes = 0;
  for (const Owned& owned : unit.owned) {
    if (owned.updates.elems == 0) { continue; }
    bytes += arrays_ *
             (Arena::need(array_bytes(owned.updates)) + Arena::need(scale_bytes(owned.updates)));
  }
  return bytes;
}

std::size_t UpdateLayout::array_bytes(const Range& range) const noexcept {
  return static_cast<std::size_t>(range.elems) * element_bytes();
}

std::size_t UpdateLayout::element_bytes() const noexcept {
  if (quantised_) { return sizeof(std::uint8_t); }
  return options_.moments == MomentFormat::bf16 ? sizeof(bfloat16) : sizeof(float);
}

// Scales of 8-bit moments. A range is a whole number of blocks.
std::size_t UpdateLayout::scale_bytes(const Range& range) const noexcept {
  if (!quantised_) { return 0; }
  return static_cast<std::size_t>(range.elems / kMomentBlock) * sizeof(float);
}

std::vector<StateArray> UpdateLayout::take_states(const UnitPlan& unit, std::size_t segment,
                                                  Arena& arena) const {
  const Range range = unit.owned[segment].updates;
  std::vector<StateArray> states(arrays_);
  for (StateArray& state : states) {
    state.values = arena.take(array_bytes(range));
    state.element_bytes = element_bytes();
    if (quantised_) { state.scales = static_cast<float*>(arena.take(scale_bytes(range))); }
  }
  return states;
}

std::vector<UpdateRun> UpdateLayout::runs(const UnitPlan& unit, std::size_t segment,
                                          const UpdatedSegment& updated,
                                          const std::vector<ParameterRule>& rules,
                                          const std::vector<StateArray>& arrays) const {
  const Range range = unit.owned[segment].updates;
  const UpdatedWeights& weights = updated.weights;
  kernels::UpdateRun all{.master = weights.masters.values().as<float>(),
                         .parameter = weights.parameters.values(),
                         .remainder = weights.remainders.values().as<std::uint16_t>(),
                         .gradient = updated.gradient.values(),
                         .elems = range.elems,
                         .rounding = options_.rounding,
                         .seed = options_.rounding_seed};
  std::vector<float*> states;
  for (std::size_t i = 0; i < arrays_; ++i) {
    void* const array = arrays[i].values;
    if (custom_) {
      states.push_back(static_cast<float*>(array));
    } else if (quantised_) {
      kernels::QuantisedMoment& moment = i == 0 ? all.first_quantised : all.second_quantised;
      moment = {static_cast<std::uint8_t*>(array), arrays[i].scales};
    } else {
      const bool narrow = options_.moments == MomentFormat::bf16;
      Values& values = i == 0 ? all.first : all.second;
      values = {array, narrow ? DType::bf16 : DType::fp32};
    }
  }
  const Segment all_of_it{
      unit, segment,          rules, unit.layout.segments()[segment].placements(), range,
      all,  std::move(states)};
  const bool apart = custom_ || quantised_ || options_.rounding == Rounding::stochastic;
  return apart ? runs_apart(all_of_it) : runs_together(all_of_it);
}

}  // namespace tessera::engine
