#include "engine/unit/update_home.hpp"

#include <algorithm>
#include <span>

#include "engine/unit/update_on_device.hpp"
#include "engine/unit/update_on_host.hpp"
#include "engine/unit/update_parked.hpp"
#include "kernels/table.hpp"
#include "world/host_pool.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {
namespace {

kernels::AdamWKernel* kernel_of(const kernels::Table& table, const AdamW&) noexcept {
  return table.adamw;
}
kernels::AdamKernel* kernel_of(const kernels::Table& table, const Adam&) noexcept {
  return table.adam;
}
kernels::LionKernel* kernel_of(const kernels::Table& table, const Lion&) noexcept {
  return table.lion;
}
kernels::SGDKernel* kernel_of(const kernels::Table& table, const SGD&) noexcept {
  return table.sgd;
}

using Runs = std::span<const UpdateRun* const>;

template <class Rule>
void launch(const kernels::Table& kernels, const Rule& rule, float lr, Runs runs,
            const kernels::StepScalars* scalars, Stream stream) {
  std::vector<kernels::RuledRun<Rule>> table;
  table.reserve(runs.size());
  for (const UpdateRun* const run : runs) {
    Rule& mine = table.emplace_back(run->update, rule).hyper;
    mine.lr = lr * run->rule.lr_scale;
    mine.weight_decay = run->rule.weight_decay;
  }
  kernel_of(kernels, rule)(table, scalars, stream);
}

void launch_one(const kernels::Table& kernels, const CustomOptimizer& rule, float lr,
                const UpdateRun& run, const kernels::StepScalars* scalars, Stream stream) {
  const kernels::UpdateRun& update = run.update;
  const ShardUpdate piece{
      .parameter = run.parameter,
      .part = run.part,
      .first = update.first_in_parameter - run.part->elems_before(),
      .weights = {update.master, static_cast<std::size_t>(update.elems)},
      .gradient = update.gradient,
      .states = {},
      .gradient_factor = &scalars->gradient_factor,
      .apply = &scalars->apply,
      .updates = &scalars->updates,
      .lr = lr * run.rule.lr_scale,
      .weight_decay = run.rule.weight_decay,
      .stream = stream,
  };
  // The call may run after `run` is destroyed, so it owns a copy of the states.
  const auto work = [piece, states = run.states, &rule] {
    ShardUpdate mine = piece;
    mine.states = states;
    rule.update(mine);
  };
  kernels.call(work, stream);
  kernels.round_weights(update, scalars, stream);
}

void launch(const kernels::Table& kernels, const CustomOptimizer& rule, float lr, Runs runs,
            const kernels::StepScalars* scalars, Stream stream) {
  for (const UpdateRun* const run : runs) { launch_one(kernels, rule, lr, *run, scalars, stream); }
}

}  // namespace

void launch_updates(const kernels::Table& table, std::span<const UpdateRun* const> runs,
                    const Optimizer& optimizer, float learning_rate,
                    const kernels::StepScalars* scalars, Stream stream) {
  std::visit([&](const auto& rule) { launch(table, rule, learning_rate, runs, scalars, stream); },
             optimizer);
}

void UpdateHome::train(const UpdateLayout& layout, const std::vector<ParameterRule>& rules,
                       Arena& arena) {
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    if (plan_.owned[s].updates.elems > 0) { states_[s] = layout.take_states(plan_, s, arena); }
  }
  plan_runs(layout, rules);
}

void UpdateHome::plan_runs(const UpdateLayout& layout, const std::vector<ParameterRule>& rules) {
  runs_.clear();
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    if (plan_.owned[s].updates.elems == 0) { continue; }
    std::ranges::move(layout.runs(plan_, s, updated(s), rules, states_[s]),
                      std::back_inserter(runs_));
  }
}

// A captured graph does not need the events: it starts after the streams of the copies.
void UpdateHome::await_copies(Stream writer) {
  for (const Event copied : copies_) { writer.wait_for(copied); }
  copies_.clear();
}

View masters_of(const UnitPlan& plan, std::size_t segment, MasterWeights kind) {
  const SegmentDTypes& dtypes = plan.layout.segments()[segment].dtypes();
  if (dtypes.parameter == dtypes.master) { return {}; }
  const DType kept = kind == MasterWeights::fp32 ? dtypes.master : DType::bf16;
  return {nullptr, plan.owned[segment].updates.elems, kept};
}

kernels::MasterPart part_of(MasterWeights kind) noexcept {
  return kind == MasterWeights::fp32 ? kernels::MasterPart::value : kernels::MasterPart::remainder;
}

UpdatedWeights weights_of(View own, View kept, kernels::MasterPart part, bool on_host) noexcept {
  if (kept.elems == 0) { return {.masters = own}; }
  if (part == kernels::MasterPart::value) {
    return {.masters = kept, .parameters = own, .on_host = on_host};
  }
  return {.parameters = own, .remainders = kept, .on_host = on_host};
}

// ------------------------------------------------------------------------------------------ pool

namespace {

/// Bytes of the arena that the masters of `plan` use up.
std::size_t master_bytes(const UnitPlan& plan, MasterWeights kind) {
  std::size_t bytes = 0;
  for (std::size_t s = 0; s < plan.segments(); ++s) {
    bytes += Arena::need(masters_of(plan, s, kind).bytes());
  }
  return bytes;
}

}  // namespace

UpdatePool::UpdatePool(World& world, const UnitPlans& plans, Journal& journal,
                       MasterWeights masters)
    : world_{world},
      plans_{plans},
      journal_{journal},
      masters_{masters},
      readers_{world.device().make_event()},
      mark_{world.device().make_event()} {
  std::size_t on_device = 0;
  std::size_t on_host = 0;
  for (const UnitPlan& plan : plans) {
    if (plan.state_on_host()) { offload_ = plan.offload; }
    if (plan.updated_on_host()) {
      on_host += UpdateOnHost::weight_bytes(plan);
    } else {
      (plan.state_on_host() ? on_host : on_device) += master_bytes(plan, masters);
    }
  }
  if (on_device > 0) {
    device_ = Arena{world.allocate(Category::optimizer, on_device, "master weights")};
  }
  if (on_host > 0) {
    host_ = Arena{world.allocate_host(Category::optimizer, on_host, "weights in the host pool")};
  }
}

std::unique_ptr<UpdateHome> UpdatePool::make_home(std::size_t unit, ParameterHome& parameters,
                                                  const GradientHome& gradients) {
  const UnitPlan& plan = plans_[unit];
  switch (plan.offload) {
    case Offload::optimizer:
      return std::make_unique<UpdateOnHost>(world_, plan, parameters, *gradients.host(), host_);
    case Offload::state:
      return std::make_unique<UpdateParked>(plan, parameters, gradients,
                                            UpdateParked::Masters{masters_, world_, host_, ring_});
    case Offload::none:
      break;
  }
  return std::make_unique<UpdateOnDevice>(plan, parameters, gradients,
                                          UpdateOnDevice::Masters{masters_, world_, device_});
}

void UpdatePool::update_together(const UpdateRule& rule, const UpdateRuns& together) {
  if (together.empty()) { return; }
  const Journal::Span span = journal_.begin_span();
  launch_updates(world::kernels_of(world_), together, rule.optimizer, rule.learning_rate,
                 rule.on_device, world_.compute_stream());
  journal_.end_span("update", "all units", span);
}

void UpdatePool::take_ring(std::size_t piece_bytes) {
  ring_ = StateRing{world_, piece_bytes};
}

void UpdatePool::order_after_updates(Stream writer) {
  if (offload_ != Offload::state) { return; }
  world::HostPool{world_}.update_stream().record(mark_.get());
  writer.wait_for(mark_.get());
}

bool UpdatePool::begin_offloaded(Event scalars) {
  if (offload_ == Offload::none) { return false; }
  world::HostPool pool{world_};
  world_.compute_stream().record(readers_.get());
  if (offload_ == Offload::optimizer) {
    pool.copy_stream(world::CopyKind::states).wait_for(readers_.get());
    pool.compute_stream().wait_for(scalars);
    return true;
  }
  pool.update_stream().wait_for(readers_.get());
  // State is brought once the previous step's state is back, which may be during backward.
  pool.copy_stream(world::CopyKind::states).record(mark_.get());
  pool.copy_stream(world::CopyKind::states_in).wait_for(mark_.get());
  return true;
}

void UpdatePool::wait() {
  world::HostPool pool{world_};
  if (offload_ == Offload::optimizer) { pool.compute_stream().wait(); }
  if (offload_ != Offload::state) { return; }
  pool.update_stream().wait();
  pool.copy_stream(world::CopyKind::states).wait();
}

}  // namespace tessera::engine
