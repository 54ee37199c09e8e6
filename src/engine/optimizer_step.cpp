#include "engine/optimizer_step.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "kernels/table.hpp"

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

// As the run's rule says. A group's rate follows the optimizer's.
template <class Rule>
void launch(const kernels::Table& kernels, const Rule& rule, float lr, const UpdatePlan::Run& run,
            const kernels::StepScalars* scalars, Stream stream) {
  Rule mine = rule;
  mine.lr = lr * run.rule.lr_scale;
  mine.weight_decay = run.rule.weight_decay;
  kernel_of(kernels, mine)(run.update, mine, scalars, stream);
}

void launch(const kernels::Table& kernels, const CustomOptimizer& rule, float lr,
            const UpdatePlan::Run& run, const kernels::StepScalars* scalars, Stream stream) {
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

kernels::FinishStep finish_options(const ShardPlace& place, const ModelOptions& options,
                                   const OptimizerOptions& optimizer) {
  const double parts = static_cast<double>(place.data_ranks()) * options.accumulate;
  kernels::FinishStep finish{.average = static_cast<float>(1.0 / parts),
                             .clip_norm = optimizer.clip_norm,
                             .ranks = place.data_ranks()};
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

OptimizerStep::OptimizerStep(World& world, const TrainingState& state, const ModelOptions& options,
                             const Optimizer& optimizer, const OptimizerOptions& optimizer_options,
                             const ParameterRules& rules, const Sharding& group)
    : world_{world},
      units_{state.units},
      host_gradients_{state.gradients.host()},
      host_weights_{state.host},
      traits_{traits_of(options.strategy)},
      finish_{finish_options(group, options, optimizer_options)},
      optimizer_{optimizer},
      learning_rate_{std::visit([](const auto& rule) { return rule.lr; }, optimizer)},
      plan_{UpdatePlan::make(world, state, optimizer, optimizer_options, rules)},
      scalars_{world.allocate(Category::workspace, sizeof(kernels::StepScalars), "step scalars")},
      sums_{world.allocate(Category::workspace,
                           sizeof(double) * (static_cast<std::size_t>(finish_.ranks) + 1),
                           "step sums")},
      returned_{{Returned{world.device()}, Returned{world.device()}}},
      mark_{world.device().make_event()} {
  kernels::StepScalars& first = *returned_[last_].scalars.get();
  first.loss_scale = first_loss_scale(options.loss_scaling, options.compute, options.gradient);
  first.used_loss_scale = first.loss_scale;
  const Stream compute = world.compute_stream();
  world.device().copy_in(scalars_.data(), &first, sizeof first, compute);
  compute.wait();
  plan_norms(state, group.normed_shard());
}

// One shard of each segment a rank, also where ranks hold several or all of them: each is computed
// once in the job. Rank 0 alone: all shards, one after the other.
void OptimizerStep::plan_norms(const TrainingState& state, int mine) {
  const auto& [units, parameters, gradients, masters, host] = state;
  const bool all_shards = traits_.optimizer == Holding::rank0;
  for (std::size_t u = 0; u < units.size(); ++u) {
    for (std::size_t s = 0; s < units[u].layout.segments().size(); ++s) {
      const View gradient = gradients.resident(u, s);
      if (gradient.elems == 0) { continue; }
      const Range kept = gradients.resident_range(u, s);
      const int first = all_shards ? 0 : mine;
      const int count = all_shards ? finish_.ranks : 1;
      const Range shard = units[u].layout.segments()[s].shard(first);
      norms_.push_back(
          {gradient.slice(shard.first - kept.first, count * shard.elems), first, count});
    }
  }
}

void OptimizerStep::add_norms(double* sums) {
  // Rank 0 of a million, simulated, would spend its time on calls that compute nothing.
  if (!world_.device().computes() && world_.work_log() == nullptr) { return; }
  for (const NormTerms& terms : norms_) {
    const std::int64_t elems = terms.gradient.elems / terms.shards;
    for (int i = 0; i < terms.shards; ++i) {
      world_.kernels().squared_norm(terms.gradient.slice(i * elems, elems).values(), elems,
                                    &sums[terms.first_shard + i], world_.compute_stream());
    }
  }
}

// To what the host has added: units whose gradients are there come before those on the device.
void OptimizerStep::clear_sums() {
  const Stream compute = world_.compute_stream();
  world_.device().fill(sums_.data(), 0, sums_.bytes(), compute);
  if (host_gradients_ == nullptr || !host_gradients_->has_norms()) { return; }
  const double* const added = host_gradients_->sum_norms(compute);
  world_.device().copy_in(sums_.data(), added,
                          static_cast<std::size_t>(finish_.ranks) * sizeof(double), compute);
}

// Labels are compared across ranks: a rate that differs is refused there. One that is the
// optimizer's own has been compared with it.
std::string OptimizerStep::with_rate(const char* label) const {
  const float agreed = std::visit([](const auto& rule) { return rule.lr; }, optimizer_);
  if (learning_rate_ == agreed) { return label; }
  return fmt::format("{} at learning rate {}", label, learning_rate_);
}

void OptimizerStep::reduce_scalars(const double* loss, const char* label) {
  const Stream compute = world_.compute_stream();
  auto* sums = static_cast<double*>(sums_.data());
  const auto count = static_cast<std::size_t>(finish_.ranks) + 1;
  clear_sums();
  add_norms(sums);
  if (loss != nullptr) { world_.device().copy(&sums[count - 1], loss, sizeof(double), compute); }

  // Every entry but the loss has one rank that is not zero, so that the sum is exact.
  const Channel channel = world_.reduce_channel();
  compute.record(mark_.get());
  channel.stream.wait_for(mark_.get());
  Batch batch{with_rate(label)};
  batch.all_reduce({sums, static_cast<std::int64_t>(count), DType::fp64});
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.record(mark_.get());
  compute.wait_for(mark_.get());
}

void OptimizerStep::update(const std::vector<std::size_t>& units, Journal& journal) {
  auto* scalars = static_cast<kernels::StepScalars*>(scalars_.data());
  const Stream compute = world_.compute_stream();
  world_.kernels().finish_step(scalars, static_cast<const double*>(sums_.data()), finish_, compute);
  last_ = 1 - last_;
  Returned& returned = returned_[last_];
  returned.learning_rate = learning_rate_;
  world_.device().copy_out(returned.scalars.get(), scalars, sizeof *scalars, compute);
  compute.record(returned.copied.get());
  update_on_device(journal);
  if (host_weights_ != nullptr) { update_on_host(units, returned); }
}

// Runs of a unit follow each other.
void OptimizerStep::update_on_device(Journal& journal) {
  const auto* const scalars = static_cast<const kernels::StepScalars*>(scalars_.data());
  const auto& kernels = world_.kernels();
  Journal::Span span;
  for (std::size_t i = 0; i < plan_.runs.size(); ++i) {
    const UpdatePlan::Run& run = plan_.runs[i];
    if (units_[run.unit].offloaded) { continue; }
    const bool first = i == 0 || plan_.runs[i - 1].unit != run.unit;
    const bool last = i + 1 == plan_.runs.size() || plan_.runs[i + 1].unit != run.unit;
    if (first) { span = journal.begin_span(); }
    std::visit(
        [&](const auto& rule) {
          launch(kernels, rule, learning_rate_, run, scalars, world_.compute_stream());
        },
        optimizer_);
    if (last) { journal.end_span("update", units_[run.unit].name, span); }
  }
}

// The scalars stay in host memory until the step after the next, whose gradients come later.
void OptimizerStep::update_on_host(const std::vector<std::size_t>& units, Returned& returned) {
  host_weights_->begin_update();
  world_.host_stream().wait_for(returned.copied.get());
  for (const std::size_t unit : units) {
    if (!units_[unit].offloaded) { continue; }
    update_on_host(unit, returned.scalars.get());
    host_gradients_->release(unit);
    host_weights_->send(unit);
  }
}

void OptimizerStep::update_on_host(std::size_t unit, const kernels::StepScalars* scalars) {
  const auto of_unit = std::ranges::equal_range(plan_.runs, unit, {}, &UpdatePlan::Run::unit);
  const std::span<const UpdatePlan::Run> runs{of_unit};
  if (runs.empty()) { return; }
  // The rule stays as it is while the host is at it: its rate is apart.
  const auto work = [this, runs, scalars, lr = learning_rate_](Stream cpu) {
    const auto& kernels = kernels::cpu_table();
    for (const UpdatePlan::Run& run : runs) {
      std::visit([&](const auto& rule) { launch(kernels, rule, lr, run, scalars, cpu); },
                 optimizer_);
    }
  };
  world_.compute_on_host(work, "update", units_[unit].name);
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
