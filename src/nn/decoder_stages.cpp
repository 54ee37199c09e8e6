#include "nn/decoder_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera::nn {
namespace {

void require_no_pipe(const DecoderOptions& options) {
  if (options.boundaries == Boundaries::device) { return; }
  throw ConfigError{
      "Boundaries::host on a mesh with `pipe`: the pipeline keeps the inputs of stages on the "
      "device; leave one of them out"};
}

void require_whole_logits(const DecoderOptions& options, const MeshShape& mesh) {
  if (options.gather_logits == GatherLogits::off) { return; }
  if (mesh.size("pipe") == 1 && mesh.size("tensor") == 1) { return; }
  throw ConfigError{
      "GatherLogits::on_rank0 on a mesh with `pipe` or `tensor`, where few ranks have logits and "
      "none has whole rows: leave one of them out"};
}

/// Ranks along `tensor` share heads of keys. Where several queries share one, ranks without any
/// would be most of a layer's cost away from an even share.
void require_key_heads(const DecoderConfig& config, const MeshShape& mesh) {
  const int ranks = mesh.size("tensor");
  if (config.key_heads() == config.heads || ranks <= config.key_heads()) { return; }
  throw ConfigError{
      fmt::format("{} ranks along tensor for {} heads of keys and values: each rank needs at least "
                  "one; give at "
                  "most {} ranks along tensor",
                  ranks, config.key_heads(), config.key_heads())};
}

/// An inference has no micro-batches, but the same stages as training.
int scheduled_micro_batches(const ModelOptions& model, int ranks) {
  return model.purpose == Purpose::training ? model.accumulate : ranks;
}

pipeline::Schedule schedule_of(const DecoderOptions& options, int ranks, int micro_batches) {
  pipeline::Schedule schedule = options.schedule(ranks, micro_batches);
  pipeline::check(schedule);
  if (std::ssize(schedule.ranks) != ranks || schedule.micro_batches != micro_batches) {
    throw ConfigError{fmt::format(
        "schedule {} has {} micro-batches on {} ranks, but the model has {} micro-batches a step "
        "and {} ranks along `pipe`; make the schedule for these",
        schedule.name, schedule.micro_batches, schedule.ranks.size(), micro_batches, ranks)};
  }
  return schedule;
}

}  // namespace

std::vector<DecoderStage> divide_layers(std::int64_t layers, int stages) {
  if (stages > layers) {
    throw ConfigError{
        fmt::format("{} stages of a pipeline for {} layers: every stage needs at least one layer; "
                    "give fewer stages or more layers",
                    stages, layers)};
  }
  const std::int64_t remainder = layers % stages;
  std::vector<DecoderStage> all;
  std::int64_t first = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const bool last = stage + 1 == stages;
    const bool one_more =
        stage == 0 ? stages > 1 && remainder == stages - 1 : !last && stage <= remainder;
    const std::int64_t count = layers / stages + (one_more ? 1 : 0);
    all.push_back({.index = stage,
                   .first_layer = first,
                   .layers = count,
                   .embeds = stage == 0,
                   .predicts = last});
    first += count;
  }
  return all;
}

DecoderPlace place_of(const DecoderConfig& config, const DecoderOptions& options,
                      const World& world, const ModelOptions& model) {
  DecoderPlace place;
  place.data_rank = world.rank();
  place.data_ranks = world.size();
  int pipe = 1;
  if (!model.mesh.empty()) {
    const MeshShape mesh{model.mesh};
    require_ranks(mesh, world.size());
    place.data_rank = mesh.data_index(world.rank());
    place.data_ranks = mesh.data_ranks();
    place.pipe_index = mesh.index("pipe", world.rank());
    pipe = mesh.size("pipe");
    require_whole_logits(options, mesh);
    require_key_heads(config, mesh);
  }
  if (pipe == 1) {
    place.all_stages = place.stages = divide_layers(config.layers, 1);
    return place;
  }
  require_no_pipe(options);
  const pipeline::Schedule& schedule =
      place.schedule.emplace(schedule_of(options, pipe, scheduled_micro_batches(model, pipe)));
  place.all_stages = divide_layers(config.layers, schedule.stages());
  const auto here = static_cast<std::size_t>(place.pipe_index);
  for (const DecoderStage& stage : place.all_stages) {
    if (schedule.rank_of_stage[static_cast<std::size_t>(stage.index)] == place.pipe_index) {
      place.stages.push_back(stage);
    }
  }
  if (place.stages.empty()) {
    throw ConfigError{
        fmt::format("schedule {} has no stage on rank {} along `pipe`; give every rank a stage",
                    schedule.name, here)};
  }
  if (model.purpose == Purpose::inference) { return place; }
  place.slots = pipeline::most_in_flight(schedule)[here];
  place.divided = std::ranges::any_of(schedule.ranks[here], [](const pipeline::Action& action) {
    return action.work == pipeline::Work::backward_weight;
  });
  return place;
}

}  // namespace tessera::nn
