#include "tools/train/rank_gpt.hpp"

#include "tools/options/optimizer.hpp"
#include "tools/options/resharding.hpp"

namespace tessera::tools {

ModelOptions model_options(const Settings& settings, Strategy strategy) {
  ModelOptions options;
  options.strategy = strategy;
  if (strategy == Strategy::hybrid) { options.shard_group = settings.shard_group; }
  options.compute = settings.precision;
  options.master_weights = settings.master_weights;
  options.gradient = settings.gradient_dtype;
  options.reduce = settings.reduce_dtype;
  if (settings.moments == MomentFormat::int8) { options.align_elems = kMomentBlock; }
  options.loss_scaling = settings.loss_scaling;
  options.max_skips = settings.max_skips;
  set_resharding(settings, options);
  options.offload = settings.offload;
  options.offload_keep = settings.offload_keep;
  options.accumulate = settings.accumulate;
  options.accumulate_mode = settings.accumulate_mode;
  return options;
}

nn::GPTOptions gpt_options(const Settings& settings) {
  return {.norms = settings.norm_dtype,
          .recompute = settings.recompute,
          .boundaries = settings.boundaries,
          .dropout = settings.dropout,
          .dropout_seed = settings.seed};
}

Sharded<nn::GPT> sampling_gpt(World& world, const Settings& settings, const nn::GPTConfig& config,
                              Strategy strategy) {
  ModelOptions options;
  options.strategy = strategy;
  if (strategy == Strategy::hybrid) { options.shard_group = settings.shard_group; }
  options.purpose = Purpose::inference;
  options.compute = settings.precision;
  options.prefetch = settings.prefetch;
  return shard(nn::GPT(config), world, options);
}

RankGpt::RankGpt(World& world, const Settings& settings, const nn::GPTConfig& config,
                 Strategy strategy)
    : settings_{settings},
      gpt_{shard(nn::GPT(config, gpt_options(settings)), world,
                 model_options(settings, strategy))} {}

void RankGpt::materialize(const Initializer& initial) {
  gpt_.materialize(initial);
}

void RankGpt::prepare() {
  gpt_.optimize_with(optimizer_of(settings_), optimizer_options(settings_));
  gpt_.module().reserve(settings_.batch);
}

void RankGpt::micro_batch(std::span<const std::int32_t> inputs,
                          std::span<const std::int32_t> targets) {
  gpt_.forward_backward(inputs, targets);
}

double RankGpt::evaluate(std::span<const std::int32_t> inputs,
                         std::span<const std::int32_t> targets) {
  return gpt_.module().evaluate(inputs, targets);
}

void RankGpt::update(float lr) {
  gpt_.set_learning_rate(lr);
  gpt_.step();
}

}  // namespace tessera::tools
