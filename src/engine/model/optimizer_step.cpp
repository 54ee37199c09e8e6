#include "engine/model/optimizer_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "kernels/table.hpp"
#include "world/world_kernels.hpp"

namespace tessera::engine {
namespace {

kernels::FinishStep finish_options(const ShardPlace& place, const ModelOptions& options,
                                   const OptimizerOptions& optimizer) {
  const double parts = static_cast<double>(place.data_ranks()) * options.accumulate;
  kernels::FinishStep finish{.average = static_cast<float>(1.0 / parts),
                             .clip_norm = optimizer.clip_norm,
                             .ranks = place.data_ranks(),
                             .norms = place.norms()};
  const LossScaling& scaling = options.loss_scaling;
  if (resolve(scaling.mode, options.compute, options.gradient) == LossScaleMode::dynamic) {
    finish.scale_growth = scaling.growth;
    finish.scale_backoff = scaling.backoff;
    finish.growth_interval = scaling.growth_interval;
    finish.least_scale = scaling.minimum;
    finish.most_scale = LossScaling::kMost;
  }
  return finish;
}

}  // namespace

OptimizerStep::OptimizerStep(World& world, LiveUnits& units, const Setup& setup)
    : world_{world},
      units_{units},
      finish_{finish_options(setup.group, setup.model, setup.options)},
      optimizer_{setup.optimizer},
      learning_rate_{std::visit([](const auto& rule) { return rule.lr; }, setup.optimizer)},
      options_{setup.options},
      rules_{setup.rules},
      shards_{setup.group.data_ranks()},
      first_norm_{setup.group.first_norm()},
      tells_loss_{setup.group.tensor().index == 0},
      returned_{{Returned{world.device()}, Returned{world.device()}}},
      mark_{world.device().make_event()} {
  scalars_ = world.allocate(Category::workspace, sizeof(kernels::StepScalars), "step scalars");
  sums_ =
      world.allocate(Category::workspace,
                     sizeof(double) * (static_cast<std::size_t>(finish_.norms) + 2), "step sums");
  take_state(
      setup);  // last: a failure after it in this constructor would leave the units their ring
  kernels::StepScalars first;
  first.loss_scale =
      first_loss_scale(setup.model.loss_scaling, setup.model.compute, setup.model.gradient);
  first.used_loss_scale = first.loss_scale;
  continue_after(first);
  plan_norms(setup);
}

// Also runs if there was no memory for what a step needs besides its state.
OptimizerStep::~OptimizerStep() {
  units_.updates().end_ring();
}

void OptimizerStep::continue_after(const kernels::StepScalars& scalars) {
  for (Returned& returned : returned_) { *returned.scalars.get() = scalars; }
  const Stream compute = world_.compute_stream();
  world_.device().copy_in(scalars_.data(), returned_[last_].scalars.get(), sizeof scalars, compute);
  compute.wait();
}

void OptimizerStep::take_state(const Setup& setup) {
  const UpdateLayout layout{setup.optimizer, setup.options};
  std::size_t on_device = 0;
  std::size_t on_host = 0;
  for (const UnitPlan& plan : units_.plans()) {
    (plan.state_on_host() ? on_host : on_device) += layout.state_bytes(plan);
  }
  device_state_ = Arena{world_.allocate(Category::optimizer, on_device, "optimizer state")};
  host_state_ =
      Arena{world_.allocate_host(Category::optimizer, on_host, "optimizer state in the host pool")};
  std::size_t piece_bytes = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    Arena& arena = units_.plans()[u].state_on_host() ? host_state_ : device_state_;
    units_[u].update().train(layout, setup.rules[u], arena);
    piece_bytes = std::max(piece_bytes, units_[u].update().piece_bytes());
  }
  units_.updates().take_ring(piece_bytes);
  if (on_device > 0) {
    world_.device().fill(device_state_.data(), 0, on_device, world_.compute_stream());
  }
  if (on_host > 0) {
    world_.compute([&] { std::memset(host_state_.data(), 0, on_host); });
  }
}

// Each rank computes one shard of each segment, also where ranks hold several or all shards, so
// each is computed once in the job. Under dp, rank 0 computes all shards in order.
void OptimizerStep::plan_norms(const Setup& setup) {
  const bool all_shards = traits_of(setup.model.strategy).optimizer == Holding::rank0;
  const int first = all_shards ? 0 : setup.group.normed_shard();
  const int count = all_shards ? shards_ : 1;
  for (const LiveUnit& unit : units_) {
    for (std::size_t s = 0; s < unit.plan().segments(); ++s) {
      const View gradient = unit.gradients().resident(s);
      if (gradient.elems == 0 || !unit.plan().owned[s].normed) { continue; }
      const Range kept = unit.plan().owned[s].updates;
      const Range shard = unit.plan().layout.segments()[s].shard(first);
      norms_.push_back(
          {gradient.slice(shard.first - kept.first, count * shard.elems), first, count});
    }
  }
}

void OptimizerStep::add_norms(double* sums) {
  // Simulating rank 0 of a million would spend its time on terms that no kernel reads.
  if (!world_.device().computes() && world_.work_log() == nullptr) { return; }
  if (norms_.empty()) { return; }
  std::vector<kernels::NormTerm> terms;
  for (const NormTerms& shards : norms_) {
    const std::int64_t elems = shards.gradient.elems / shards.shards;
    for (int i = 0; i < shards.shards; ++i) {
      terms.push_back({shards.gradient.slice(i * elems, elems).values(), elems,
                       &sums[first_norm_ + shards.first_shard + i]});
    }
  }
  world::kernels_of(world_).squared_norm(terms, world_.compute_stream());
}

// Device norms are added to the host's: units whose gradients are on the host come first.
void OptimizerStep::clear_sums() {
  const Stream compute = world_.compute_stream();
  world_.device().fill(sums_.data(), 0, sums_.bytes(), compute);
  HostGradientPool* const host = units_.gradients().host();
  if (host == nullptr || !host->has_norms()) { return; }
  const double* const added = host->sum_norms(compute);
  world_.device().copy_in(static_cast<double*>(sums_.data()) + first_norm_, added,
                          static_cast<std::size_t>(shards_) * sizeof(double), compute);
}

// Labels are compared across ranks, so a rate that differs is rejected there. The optimizer's own
// rate was compared with the optimizer.
std::string OptimizerStep::with_rate(const std::string& label) const {
  const float agreed = std::visit([](const auto& rule) { return rule.lr; }, optimizer_);
  if (learning_rate_ == agreed) { return label; }
  return fmt::format("{} at learning rate {}", label, learning_rate_);
}

void OptimizerStep::reduce_scalars(const double* loss, const LossCount& count,
                                   const std::string& label) {
  const Stream compute = world_.compute_stream();
  auto* sums = static_cast<double*>(sums_.data());
  const bool counts = count.of > 0.0;
  finish_.most_counted = counts ? count.of * finish_.ranks : 0.0;
  double* const losses = sums + finish_.norms;
  clear_sums();
  add_norms(sums);
  if (loss != nullptr && tells_loss_) {
    world_.device().copy(losses, loss, sizeof(double), compute);
    if (counts) { world_.device().copy(losses + 1, count.counted, sizeof(double), compute); }
  }

  // Only one rank has a nonzero value in each entry but the loss and the count, a sum of whole
  // numbers: all sums but the loss are exact.
  Batch batch{with_rate(label)};
  batch.all_reduce({sums, finish_.norms + (counts ? 2 : 1), DType::fp64});
  submit_in_order(compute, world_.reduce_channel(), std::move(batch), mark_.get());
}

void OptimizerStep::update(const std::vector<std::size_t>& units) {
  auto* scalars = static_cast<kernels::StepScalars*>(scalars_.data());
  const Stream compute = world_.compute_stream();
  units_.updates().order_after_updates(compute);
  world::kernels_of(world_).finish_step(scalars, static_cast<const double*>(sums_.data()), finish_,
                                        compute);
  last_ = 1 - last_;
  Returned& returned = returned_[last_];
  returned.learning_rate = learning_rate_;
  world_.device().copy_out(returned.scalars.get(), scalars, sizeof *scalars, compute);
  compute.record(returned.copied.get());

  // The scalars stay in host memory until the step after the next, whose gradients come later.
  const UpdateRule rule{optimizer_, learning_rate_, scalars, returned.scalars.get()};
  UpdateRuns together;
  for (const LiveUnit& unit : units_) {
    if (!unit.plan().state_on_host()) { unit.update().update(rule, together); }
  }
  units_.updates().update_together(rule, together);
  if (!units_.updates().begin_offloaded(returned.copied.get())) { return; }
  for (const std::size_t u : units) {
    if (units_[u].plan().state_on_host()) { units_[u].update().update(rule, together); }
  }
}

void OptimizerStep::plan_runs(std::size_t unit) {
  if (!units_[unit].trains()) { return; }
  units_.updates().wait();
  units_[unit].update().plan_runs(UpdateLayout{optimizer_, options_}, rules_[unit]);
}

void OptimizerStep::set_learning_rate(float lr) {
  validate_learning_rate(lr);
  learning_rate_ = lr;
}

OptimizerStep::Outcome OptimizerStep::outcome(std::size_t which) const {
  const Returned& returned = returned_[which];
  returned.copied.get().wait();
  return {*returned.scalars, returned.learning_rate};
}

const float* OptimizerStep::loss_scale() const noexcept {
  return &static_cast<const kernels::StepScalars*>(scalars_.data())->loss_scale;
}

}  // namespace tessera::engine
