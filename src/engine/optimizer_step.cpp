#include "engine/optimizer_step.hpp"

#include <algorithm>
#include <string>

#include "kernels/table.hpp"

namespace tessera::engine {
namespace {

constexpr DType kMoments = DType::fp32;

kernels::FinishStep finish_options(const World& world, const ModelOptions& options,
                                   const OptimizerOptions& optimizer) {
  const double parts = static_cast<double>(world.size()) * options.accumulate;
  kernels::FinishStep finish{.average = static_cast<float>(1.0 / parts),
                             .clip_norm = optimizer.clip_norm,
                             .ranks = world.size()};
  const LossScaling& scaling = options.loss_scaling;
  if (resolve(scaling.mode, options.compute) == LossScaleMode::dynamic) {
    finish.scale_growth = scaling.growth;
    finish.scale_backoff = scaling.backoff;
    finish.growth_interval = scaling.growth_interval;
    finish.least_scale = scaling.minimum;
    finish.most_scale = LossScaling::kMost;
  }
  return finish;
}

}  // namespace

OptimizerStep::OptimizerStep(World& world, const Units& units, const ParameterStore& parameters,
                             const GradientStore& gradients, const MasterStore& masters,
                             const ModelOptions& options, const Optimizer& optimizer,
                             const OptimizerOptions& optimizer_options)
    : world_{world},
      units_{units},
      parameters_{parameters},
      gradients_{gradients},
      masters_{masters},
      traits_{traits_of(options.strategy)},
      finish_{finish_options(world, options, optimizer_options)},
      optimizer_{optimizer},
      scalars_{world.allocate(Category::workspace, sizeof(kernels::StepScalars), "step scalars")},
      sums_{world.allocate(Category::workspace,
                           sizeof(double) * (static_cast<std::size_t>(world.size()) + 1),
                           "step sums")},
      scalars_copied_{world.device().make_event()},
      mark_{world.device().make_event()} {
  host_scalars_.loss_scale = first_loss_scale(options.loss_scaling, options.compute);
  host_scalars_.used_loss_scale = host_scalars_.loss_scale;
  const Stream compute = world.compute_stream();
  world.device().copy_in(scalars_.data(), &host_scalars_, sizeof host_scalars_, compute);
  compute.wait();
  plan_norms();
  plan_runs(optimizer_options);
}

// Sharded gradients: this rank's shard. Whole gradients on every rank: also only this rank's
// shard, so that each is computed once in the job. Rank 0 alone: all shards, one after the other.
void OptimizerStep::plan_norms() {
  const bool all_shards = traits_.optimizer == Holding::rank0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t s = 0; s < units_[u].layout.segments().size(); ++s) {
      const View gradient = gradients_.resident(u, s);
      if (gradient.elems == 0) { continue; }
      const Range kept = gradients_.resident_range(u, s);
      for (int rank = 0; rank < world_.size(); ++rank) {
        if (rank != world_.rank() && !all_shards) { continue; }
        const Range shard = units_[u].layout.segments()[s].shard(rank);
        const View part = gradient.slice(shard.first - kept.first, shard.elems);
        norms_.push_back({part.values(), part.elems, rank});
      }
    }
  }
}

void OptimizerStep::plan_runs(const OptimizerOptions& options) {
  const auto moments = static_cast<std::size_t>(state_count(optimizer_));
  std::size_t bytes = 0;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t s = 0; s < units_[u].layout.segments().size(); ++s) {
      bytes += moments * Arena::need(moment_bytes(gradients_.resident_range(u, s).elems));
    }
  }
  state_ = Arena{world_.allocate(Category::optimizer, bytes, "optimizer state")};
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (std::size_t s = 0; s < units_[u].layout.segments().size(); ++s) {
      plan_segment(u, s, options);
    }
  }
  if (state_.bytes() > 0) {
    world_.device().fill(state_.data(), 0, state_.bytes(), world_.compute_stream());
  }
}

std::size_t OptimizerStep::moment_bytes(std::int64_t elems) const noexcept {
  return static_cast<std::size_t>(elems) * size_of(kMoments);
}

kernels::UpdateRun OptimizerStep::whole_run(std::size_t unit, std::size_t segment) {
  const Range range = gradients_.resident_range(unit, segment);
  kernels::UpdateRun run{.elems = range.elems};
  run.master =
      updated_weights(parameters_, masters_, gradients_, unit, segment).values().as<float>();
  if (masters_.resident(unit, segment).elems > 0) {
    const std::int64_t first = parameters_.resident_range(unit, segment).first;
    run.parameter =
        parameters_.resident(unit, segment).slice(range.first - first, range.elems).values();
  }
  run.gradient = gradients_.resident(unit, segment).values();
  const int moments = state_count(optimizer_);
  if (moments > 0) { run.first = {state_.take(moment_bytes(range.elems)), kMoments}; }
  if (moments > 1) { run.second = {state_.take(moment_bytes(range.elems)), kMoments}; }
  return run;
}

// Cut where decay changes; a gap goes with the parameter before it (it holds zeros and keeps them).
void OptimizerStep::plan_segment(std::size_t unit, std::size_t segment,
                                 const OptimizerOptions& options) {
  const Range range = gradients_.resident_range(unit, segment);
  if (range.elems == 0) { return; }
  const kernels::UpdateRun all = whole_run(unit, segment);
  const UnitState& state = units_[unit];
  const auto placements = state.layout.segments()[segment].placements();
  const std::int64_t end = range.first + range.elems;
  std::int64_t at = range.first;
  for (std::size_t p = 0; p < placements.size() && at < end; ++p) {
    const std::int64_t next = p + 1 < placements.size() ? placements[p + 1].first : end;
    if (next <= at) { continue; }
    const ParameterInfo& info = state.infos[placements[p].parameter];
    const bool decays = options.decays(info.full_name(), info.shape);
    const std::int64_t from = at - range.first;
    const std::int64_t elems = std::min(next, end) - at;
    at += elems;
    const bool extends = from > 0 && runs_.back().decays == decays;
    if (extends) {
      runs_.back().update.elems += elems;
      continue;
    }
    runs_.push_back({all.slice(from, elems), decays});
  }
}

void OptimizerStep::reduce_scalars(const double* loss, const char* label) {
  const Stream compute = world_.compute_stream();
  auto* sums = static_cast<double*>(sums_.data());
  const auto count = static_cast<std::size_t>(world_.size()) + 1;
  world_.device().fill(sums, 0, count * sizeof(double), compute);
  for (const NormTerm& term : norms_) {
    world_.kernels().squared_norm(term.gradient, term.elems, &sums[term.rank], compute);
  }
  if (loss != nullptr) { world_.device().copy(&sums[count - 1], loss, sizeof(double), compute); }

  // Every entry but the loss has one rank that is not zero, so that the sum is exact.
  const Channel channel = world_.reduce_channel();
  compute.record(mark_.get());
  channel.stream.wait_for(mark_.get());
  Batch batch{label};
  batch.all_reduce({sums, static_cast<std::int64_t>(count), DType::fp64});
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.record(mark_.get());
  compute.wait_for(mark_.get());
}

void OptimizerStep::update() {
  auto* scalars = static_cast<kernels::StepScalars*>(scalars_.data());
  const Stream compute = world_.compute_stream();
  world_.kernels().finish_step(scalars, static_cast<const double*>(sums_.data()), finish_, compute);
  world_.device().copy_out(&host_scalars_, scalars, sizeof host_scalars_, compute);
  compute.record(scalars_copied_.get());
  last_learning_rate_ = learning_rate();
  const auto apply = [&](const Run& run, AdamW hyper) {
    hyper.weight_decay = run.decays ? hyper.weight_decay : 0.0F;
    world_.kernels().adamw(run.update, hyper, scalars, compute);
  };
  const auto apply_sgd = [&](const Run& run, SGD hyper) {
    hyper.weight_decay = run.decays ? hyper.weight_decay : 0.0F;
    world_.kernels().sgd(run.update, hyper, scalars, compute);
  };
  for (const Run& run : runs_) {
    if (const auto* adamw = std::get_if<AdamW>(&optimizer_)) { apply(run, *adamw); }
    if (const auto* sgd = std::get_if<SGD>(&optimizer_)) { apply_sgd(run, *sgd); }
  }
}

void OptimizerStep::set_learning_rate(float lr) {
  Optimizer changed = optimizer_;
  std::visit([lr](auto& hyper) { hyper.lr = lr; }, changed);
  validate(changed);
  optimizer_ = changed;
}

float OptimizerStep::learning_rate() const {
  return std::visit([](const auto& hyper) { return hyper.lr; }, optimizer_);
}

const kernels::StepScalars& OptimizerStep::scalars() const {
  scalars_copied_.get().wait();
  return host_scalars_;
}

const float* OptimizerStep::loss_scale() const noexcept {
  return &static_cast<const kernels::StepScalars*>(scalars_.data())->loss_scale;
}

}  // namespace tessera::engine
