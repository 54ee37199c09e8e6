#include "engine/unit/update_home.hpp"

#include <algorithm>
#include <span>

#include "engine/unit/update_on_device.hpp"
#include "engine/unit/update_on_host.hpp"
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
      .first = update.first_in_parameter,
      .weights = {update.master, static_cast<std::size_t>(update.elems)},
      .gradient = update.gradient,
      .states = run.states,
      .gradient_factor = &scalars->gradient_factor,
      .apply = &scalars->apply,
      .updates = &scalars->updates,
      .lr = lr * run.rule.lr_scale,
      .weight_decay = run.rule.weight_decay,
      .stream = stream,
  };
  kernels.call([piece, &rule] { rule.update(piece); }, stream);
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
  runs_.clear();  // of an optimizer for which there was no memory
  for (std::size_t s = 0; s < plan_.segments(); ++s) {
    if (plan_.owned[s].updates.elems == 0) { continue; }
    states_[s] = layout.take_states(plan_, s, arena);
    std::ranges::move(layout.runs(plan_, s, updated(s), rules, states_[s]),
                      std::back_inserter(runs_));
  }
}

// A graph that is captured has no need of the events: it starts after the streams of the copies.
void UpdateHome::await_copies(Stream writer) {
  for (const Event copied : copies_) { writer.wait_for(copied); }
  copies_.clear();
}

// ------------------------------------------------------------------------------------------ pool

UpdatePool::UpdatePool(World& world, const UnitPlans& plans, Journal& journal,
                       MasterWeights masters)
    : world_{world},
      plans_{plans},
      journal_{journal},
      masters_{masters},
      readers_{world.device().make_event()} {
  std::size_t on_device = 0;
  std::size_t on_host = 0;
  for (const UnitPlan& plan : plans) {
    if (plan.offloaded) {
      on_host += UpdateOnHost::weight_bytes(plan);
    } else {
      on_device += UpdateOnDevice::master_bytes(plan, masters);
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
  if (plan.offloaded) {
    return std::make_unique<UpdateOnHost>(world_, plan, parameters, *gradients.host(), host_);
  }
  return std::make_unique<UpdateOnDevice>(plan, parameters, gradients,
                                          UpdateOnDevice::Masters{masters_, world_, device_});
}

void UpdatePool::update_together(const UpdateRule& rule, const UpdateRuns& together) {
  if (together.empty()) { return; }
  const Journal::Span span = journal_.begin_span();
  launch_updates(kernels_of(world_), together, rule.optimizer, rule.learning_rate, rule.on_device,
                 world_.compute_stream());
  journal_.end_span("update", "all units", span);
}

void UpdatePool::begin_host_updates(Event scalars) {
  world_.compute_stream().record(readers_.get());
  HostPool{world_}.copy_stream(CopyLane::states).wait_for(readers_.get());
  HostPool{world_}.compute_stream().wait_for(scalars);
}

}  // namespace tessera::engine
