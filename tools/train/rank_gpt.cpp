#include "tools/train/rank_gpt.hpp"

#include "tessera/checkpoint/checkpoint.hpp"
#include "tools/options/checkpoint.hpp"
#include "tools/options/library_options.hpp"
#include "tools/options/mesh.hpp"
#include "tools/options/optimizer.hpp"

namespace tessera::tools {

nn::DecoderOptions gpt_options(const Settings& settings) {
  return {.norms = settings.norm_dtype,
          .recompute = settings.recompute,
          .boundaries = settings.boundaries,
          .head_rows = settings.head_rows,
          .dropout = settings.dropout,
          .dropout_seed = settings.seed,
          .packed = settings.packs(),
          .masked = settings.masks(),
          .schedule = schedule_maker(settings),
          .sequence_parallel = settings.sequence_parallel,
          .tensor_slices = settings.tensor_slices};
}

Sharded<nn::Decoder> sampling_gpt(World& world, const Settings& settings,
                                  const nn::DecoderConfig& config, Strategy strategy) {
  ModelOptions options;
  options.strategy = strategy;
  if (strategy == Strategy::hybrid) { options.shard_group = settings.sharded.shard_group; }
  options.purpose = Purpose::inference;
  options.compute = settings.sharded.compute;
  options.prefetch = settings.sharded.prefetch;
  return shard(nn::Decoder(config), world, options);
}

RankGpt::RankGpt(World& world, const Settings& settings, const nn::DecoderConfig& config,
                 Strategy strategy)
    : settings_{settings},
      gpt_{shard(nn::Decoder(config, gpt_options(settings)), world,
                 model_options(settings, strategy))} {}

void RankGpt::materialize(const Initializer& initial) {
  gpt_.materialize(initial);
}

void RankGpt::optimize() {
  if (settings_.steps == 0 && settings_.checkpoint.empty()) { return; }
  gpt_.optimize_with(optimizer_of(settings_), optimizer_options(settings_));
}

void RankGpt::load_from(const std::filesystem::path& checkpoint) {
  (void)load(model(), checkpoint, {},
             {.name = nn::gpt2_weight_name, .convert_moments = settings_.convert_moments});
}

void RankGpt::reserve() {
  if (settings_.steps > 0) { gpt_.module().reserve(settings_.batch); }
}

std::unique_ptr<Checkpointer> RankGpt::checkpointer() {
  if (settings_.checkpoint.empty()) { return nullptr; }
  return std::make_unique<Checkpointer>(model(), checkpointer_options(settings_));
}

double RankGpt::evaluate(const nn::MicroBatch& batch) {
  return gpt_.module().evaluate(batch);
}

void RankGpt::update(float lr) {
  gpt_.set_learning_rate(lr);
  gpt_.step();
}

}  // namespace tessera::tools
