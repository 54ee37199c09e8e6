#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "nn/decoder_state.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::nn {
namespace {

constexpr std::int64_t kMostRows = std::int64_t{1} << 30;

void check_batch(const DecoderConfig& config, std::int64_t batch) {
  const std::int64_t most = kMostRows / config.seq;
  if (batch >= 1 && batch <= most) { return; }
  throw ConfigError(
      fmt::format("a micro-batch of {} sequences: give a number from 1 to {}", batch, most));
}

/// Stages send each other slices of rows.
void require_rows(const ActivationSizes& sizes) {
  const int ranks = sizes.layers.ranks.size();
  if (!sizes.pipelined() || !sizes.sequence_parallel() || sizes.shape.rows() >= ranks) { return; }
  throw ConfigError(
      fmt::format("{} tokens in a micro-batch for {} ranks along tensor with sequence parallelism: "
                  "with `pipe` each rank needs at least one; give more tokens or fewer ranks",
                  sizes.shape.rows(), ranks));
}

// While one is read and one is written, a third is in transit.
constexpr int kBoundarySlots = 3;

bool offloads(const DecoderOptions& options, const ModelOptions& model) {
  return options.boundaries == Boundaries::host && model.purpose == Purpose::training;
}

ActivationStoreOptions store_options(const ActivationSizes& sizes) {
  const auto layers = static_cast<int>(sizes.config.layers);
  return {.count = layers,
          .bytes = static_cast<std::size_t>(sizes.stream_elems()) * size_of(sizes.compute),
          .slots = std::min(kBoundarySlots, layers),
          .name = "boundaries"};
}

pipeline::Boundary boundary_of(const ActivationSizes& sizes) {
  return {.elems = sizes.stream_elems(), .dtype = sizes.compute};
}

bool collects(const DecoderOptions& options, const World& world) {
  return options.gather_logits == GatherLogits::on_rank0 && world.rank() == 0;
}

/// The gaps between rows of logits are inspected (ForwardScope::watch) and gathered with them.
/// After this only the head writes there, zeros: it does so on devices where attention borrows the
/// logits in between.
void clear_gaps(Values logits, std::int64_t elems, World& world) {
  if (!logits) { return; }
  world.device().fill(logits.data, 0, static_cast<std::size_t>(elems) * size_of(logits.dtype),
                      world.compute_stream());
}

/// Fills the tables of rotary positions: cosines, then sines.
void fill_rotary(const ActivationSizes& sizes, float* to, World& world) {
  if (to == nullptr || !world.device().computes()) { return; }
  const DecoderConfig& config = sizes.config;
  const auto elems = static_cast<std::size_t>(sizes.rotary_elems());
  std::vector<float> tables(2 * elems);
  const std::span<float> all{tables};
  kernels::rotary_angles(config.seq, config.rotated_elems(), config.rotary_base, all.first(elems),
                         all.subspan(elems), config.rotary_scaling);
  world.device().copy_in(to, tables.data(), all.size_bytes(), world.compute_stream());
  world.compute_stream().wait();  // the host's tables end here
}

}  // namespace

Decoder::State::~State() {
  const bool moves = logits_gathered.get() || pipelined() || (layers && layers->ranks.size() > 1);
  if (!moves) { return; }
  // An error may have interrupted a transfer of logits or activations.
  world().quiesce();
}

void Decoder::reserve(std::int64_t batch) {
  State& s = *state_;
  expects(s.model != nullptr,
          "Decoder::reserve: it is not declared in a model; call declare or tessera::shard first");
  check_batch(s.config, batch);
  if (s.shape.batch == batch) { return; }
  expects(s.shape.batch == 0,
          "Decoder: every micro-batch must have as many sequences as the first");
  const ModelOptions& model = s.model->options();
  World& world = s.world();
  const DecoderBytes bytes = bytes_needed(s.config, s.options, batch, world, model);
  const ActivationSizes sizes = activation_sizes(s.config, s.options, batch, world, model);
  std::unique_ptr<ActivationStore> store;
  std::unique_ptr<pipeline::Pipeline> pipeline;
  std::size_t others = 0;  // activations allocated by these two
  if (offloads(s.options, model)) {
    const ActivationStoreOptions options = store_options(sizes);
    others = ActivationStore::bytes_needed(options).device;
    store = std::make_unique<ActivationStore>(world, options);
  }
  if (sizes.pipelined() && sizes.trains()) {
    others =
        pipeline::Pipeline::bytes_needed(*s.place.schedule, boundary_of(sizes), s.place.pipe_index);
    pipeline = std::make_unique<pipeline::Pipeline>(Mesh{world, model.mesh}, *s.place.schedule,
                                                    boundary_of(sizes));
  }
  Arena kept{world.allocate(Category::activations, bytes.activations - others,
                            "decoder activations", BufferUse::parts)};
  Arena passing{world.allocate(Category::workspace, bytes.workspace, "decoder workspace")};
  if (bytes.gather > 0) {
    s.gathered = world.allocate(Category::gather, bytes.gather, "gathered logits");
  }
  if (s.options.gather_logits == GatherLogits::on_rank0 && model.purpose == Purpose::training) {
    s.logits_gathered = world.device().make_event();
  }
  Cutter cut_kept{kept};
  Cutter cut_passing{passing};
  s.at = cut_activations(sizes, cut_kept, cut_passing);
  fill_rotary(sizes, s.at.rotary, world);
  clear_gaps(s.at.logits, sizes.logits_elems(s.at.logits_rows), world);
  s.pipeline = std::move(pipeline);
  s.store = std::move(store);
  s.kept = std::move(kept);
  s.passing = std::move(passing);
  for (const std::vector<StageActivations>& slot : s.at.slots) {
    const auto parts = [](const StageActivations& stage) { return stage.part_bytes.size(); };
    s.in_use.emplace_back(std::ranges::max(slot | std::views::transform(parts)));
  }
  s.shape = sizes.shape;
}

DecoderBytes Decoder::bytes_needed(const DecoderConfig& config, const DecoderOptions& options,
                                   std::int64_t batch, World& world, const ModelOptions& model) {
  validate(config, options);
  check_batch(config, batch);
  Cutter kept;
  Cutter passing;
  const ActivationSizes sizes = activation_sizes(config, options, batch, world, model);
  require_rows(sizes);
  static_cast<void>(cut_activations(sizes, kept, passing));
  DecoderBytes bytes{.activations = kept.bytes(), .workspace = passing.bytes()};
  if (offloads(options, model)) {
    const ActivationStoreBytes store = ActivationStore::bytes_needed(store_options(sizes));
    bytes.activations += store.device;
    bytes.host = store.host;
  }
  if (sizes.pipelined() && sizes.trains()) {
    bytes.activations += pipeline::Pipeline::bytes_needed(*sizes.place.schedule, boundary_of(sizes),
                                                          sizes.place.pipe_index);
  }
  if (collects(options, world) && model.purpose == Purpose::training) {
    bytes.gather =
        Arena::need(static_cast<std::size_t>(world.size() * sizes.shape.rows()) *
                    static_cast<std::size_t>(config.logits_row_elems()) * size_of(model.compute));
  }
  return bytes;
}

ConstView Decoder::gathered_logits() const noexcept {
  const State& s = *state_;
  if (s.gathered.data() == nullptr) { return {}; }
  return {s.gathered.data(), s.world().size() * s.shape.rows() * s.config.logits_row_elems(),
          s.model->options().compute};
}

}  // namespace tessera::nn
