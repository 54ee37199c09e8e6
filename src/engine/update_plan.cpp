#include "engine/update_plan.hpp"

#include <algorithm>
#include <cstring>

namespace tessera::engine {
namespace {

class Planner {
 public:
  Planner(const TrainingState& state, const Optimizer& optimizer, const OptimizerOptions& options,
          const ParameterRules& rules)
      : state_{state},
        options_{options},
        rules_{rules},
        arrays_{static_cast<std::size_t>(state_count(optimizer))},
        custom_{std::holds_alternative<CustomOptimizer>(optimizer)},
        coded_{options.moments == MomentFormat::int8} {}

  [[nodiscard]] std::size_t bytes(bool offloaded) const {
    std::size_t bytes = 0;
    for_segments([&](std::size_t unit, std::size_t index) {
      if (state_.units[unit].offloaded != offloaded) { return; }
      const Range range = state_.gradients.resident_range(unit, index);
      bytes += arrays_ * (Arena::need(array_bytes(range)) + Arena::need(unit_bytes(range)));
    });
    return bytes;
  }

  [[nodiscard]] std::vector<UpdatePlan::Run> runs(Arena& arena, Arena& host_arena) const {
    std::vector<UpdatePlan::Run> runs;
    for_segments([&](std::size_t unit, std::size_t index) {
      const std::size_t before = runs.size();
      Arena& place = state_.units[unit].offloaded ? host_arena : arena;
      const Segment segment = make_segment(unit, index, place);
      if (custom_ || coded_ || options_.rounding == Rounding::stochastic) {
        plan_apart(segment, runs);
      } else {
        plan_together(segment, runs);
      }
      for (std::size_t r = before; r < runs.size(); ++r) { runs[r].unit = unit; }
    });
    return runs;
  }

 private:
  /// One segment, as far as this rank updates it.
  struct Segment {
    const UnitState& unit;
    const std::vector<ParameterRule>& rules;
    std::span<const Placement> placements;
    Range range;
    kernels::UpdateRun all;
    std::vector<float*> states;  // a user's optimizer's
  };

  template <class Visit>
  void for_segments(const Visit& visit) const {
    for (std::size_t u = 0; u < state_.units.size(); ++u) {
      for (std::size_t s = 0; s < state_.units[u].layout.segments().size(); ++s) {
        if (state_.gradients.resident_range(u, s).elems > 0) { visit(u, s); }
      }
    }
  }

  [[nodiscard]] std::size_t array_bytes(const Range& range) const noexcept {
    const std::size_t elems = static_cast<std::size_t>(range.elems);
    if (coded_) { return elems; }
    return elems * (options_.moments == MomentFormat::bf16 ? sizeof(bfloat16) : sizeof(float));
  }
  /// Of the units of 8-bit moments. A range is a whole number of blocks.
  [[nodiscard]] std::size_t unit_bytes(const Range& range) const noexcept {
    if (!coded_) { return 0; }
    return static_cast<std::size_t>(range.elems / kMomentBlock) * sizeof(float);
  }

  [[nodiscard]] Segment make_segment(std::size_t unit, std::size_t index, Arena& arena) const {
    const auto& [units, parameters, gradients, masters, host] = state_;
    const bool offloaded = units[unit].offloaded;
    const Range range = gradients.resident_range(unit, index);
    const UpdatedWeights weights =
        offloaded ? UpdatedWeights{.masters = host->master(unit, index),
                                   .parameters = host->rounded(unit, index)}
                  : updated_weights(parameters, masters, gradients, unit, index);
    const View gradient =
        offloaded ? gradients.host()->resident(unit, index) : gradients.resident(unit, index);
    kernels::UpdateRun all{.master = weights.masters.values().as<float>(),
                           .parameter = weights.parameters.values(),
                           .remainder = weights.remainders.values().as<std::uint16_t>(),
                           .gradient = gradient.values(),
                           .elems = range.elems,
                           .rounding = options_.rounding,
                           .seed = options_.rounding_seed};
    std::vector<float*> states;
    for (std::size_t i = 0; i < arrays_; ++i) {
      void* const array = arena.take(array_bytes(range));
      if (custom_) {
        states.push_back(static_cast<float*>(array));
      } else if (coded_) {
        kernels::CodedMoment& codes = i == 0 ? all.first_codes : all.second_codes;
        codes = {static_cast<std::uint8_t*>(array),
                 static_cast<float*>(arena.take(unit_bytes(range)))};
      } else {
        const bool narrow = options_.moments == MomentFormat::bf16;
        Values& values = i == 0 ? all.first : all.second;
        values = {array, narrow ? DType::bf16 : DType::fp32};
      }
    }
    return {units[unit], rules_[unit], units[unit].layout.segments()[index].placements(),
            range,       all,          std::move(states)};
  }

  // A gap goes with the parameter before it: it holds zeros and keeps them.
  static void plan_together(const Segment& segment, std::vector<UpdatePlan::Run>& runs) {
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
      if (from > 0 && runs.back().rule == segment.rules[parameter]) {
        runs.back().update.elems += elems;
      } else {
        runs.push_back({segment.all.slice(from, elems), segment.rules[parameter],
                        &segment.unit.infos[parameter]});
      }
    }
  }

  static void plan_apart(const Segment& segment, std::vector<UpdatePlan::Run>& runs) {
    for (const Placement& placement : segment.placements) {
      const std::int64_t begin = std::max(placement.first, segment.range.first);
      const std::int64_t end =
          std::min(placement.first + placement.elems, segment.range.first + segment.range.elems);
      if (begin >= end) { continue; }
      const std::int64_t from = begin - segment.range.first;
      const ParameterInfo& info = segment.unit.infos[placement.parameter];
      UpdatePlan::Run run{segment.all.slice(from, end - begin), segment.rules[placement.parameter],
                          &info};
      run.update.parameter_id = info.id;
      run.update.first_in_parameter = begin - placement.first;
      for (float* const state : segment.states) {
        run.states.emplace_back(state + from, static_cast<std::size_t>(end - begin));
      }
      runs.push_back(std::move(run));
    }
  }

  const TrainingState& state_;
  const OptimizerOptions& options_;
  const ParameterRules& rules_;
  std::size_t arrays_;
  bool custom_;
  bool coded_;
};

}  // namespace

UpdatePlan UpdatePlan::make(World& world, const TrainingState& state, const Optimizer& optimizer,
                            const OptimizerOptions& options, const ParameterRules& rules) {
  const Planner planner{state, optimizer, options, rules};
  UpdatePlan plan;
  plan.arena = Arena{world.allocate(Category::optimizer, planner.bytes(false), "optimizer state")};
  plan.host_arena = Arena{world.allocate_host(Category::optimizer, planner.bytes(true),
                                              "optimizer state in the host pool")};
  plan.runs = planner.runs(plan.arena, plan.host_arena);
  if (plan.arena.bytes() > 0) {
    world.device().fill(plan.arena.data(), 0, plan.arena.bytes(), world.compute_stream());
  }
  if (plan.host_arena.bytes() > 0) {
    world.compute([&] { std::memset(plan.host_arena.data(), 0, plan.host_arena.bytes()); });
  }
  return plan;
}

}  // namespace tessera::engine
