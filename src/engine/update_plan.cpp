#include "engine/update_plan.hpp"

#include <algorithm>

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
        custom_{std::holds_alternative<CustomOptimizer>(optimizer)} {}

  [[nodiscard]] std::size_t bytes() const {
    std::size_t bytes = 0;
    for_segments([&](std::size_t unit, std::size_t index) {
      bytes += arrays_ * Arena::need(array_bytes(state_.gradients.resident_range(unit, index)));
    });
    return bytes;
  }

  [[nodiscard]] std::vector<UpdatePlan::Run> runs(Arena& arena) const {
    std::vector<UpdatePlan::Run> runs;
    for_segments([&](std::size_t unit, std::size_t index) {
      const Segment segment = make_segment(unit, index, arena);
      if (custom_ || options_.rounding == Rounding::stochastic) {
        plan_apart(segment, runs);
      } else {
        plan_together(segment, runs);
      }
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
    return static_cast<std::size_t>(range.elems) * size_of(options_.moments);
  }

  [[nodiscard]] Segment make_segment(std::size_t unit, std::size_t index, Arena& arena) const {
    const auto& [units, parameters, gradients, masters] = state_;
    const Range range = gradients.resident_range(unit, index);
    const View weights = updated_weights(parameters, masters, gradients, unit, index);
    kernels::UpdateRun all{.master = weights.values().as<float>(),
                           .gradient = gradients.resident(unit, index).values(),
                           .elems = range.elems,
                           .rounding = options_.rounding,
                           .seed = options_.rounding_seed};
    if (masters.resident(unit, index).elems > 0) {
      const std::int64_t first = range.first - parameters.resident_range(unit, index).first;
      all.parameter = parameters.resident(unit, index).slice(first, range.elems).values();
    }
    std::vector<float*> states;
    for (std::size_t i = 0; i < arrays_; ++i) {
      void* const array = arena.take(array_bytes(range));
      if (custom_) {
        states.push_back(static_cast<float*>(array));
      } else {
        (i == 0 ? all.first : all.second) = {array, options_.moments};
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
};

}  // namespace

UpdatePlan UpdatePlan::make(World& world, const TrainingState& state, const Optimizer& optimizer,
                            const OptimizerOptions& options, const ParameterRules& rules) {
  const Planner planner{state, optimizer, options, rules};
  UpdatePlan plan;
  plan.arena = Arena{world.allocate(Category::optimizer, planner.bytes(), "optimizer state")};
  plan.runs = planner.runs(plan.arena);
  if (plan.arena.bytes() > 0) {
    world.device().fill(plan.arena.data(), 0, plan.arena.bytes(), world.compute_stream());
  }
  return plan;
}

}  // namespace tessera::engine
