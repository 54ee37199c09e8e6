#include "tessera/nn/decoder.hpp"

#include <fmt/format.h>

#include <utility>

#include "nn/decoder_state.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::nn {
Decoder::Decoder(const DecoderConfig& config, DecoderOptions options) {
  validate(config, options);
  state_ = std::make_unique<State>(config, std::move(options));
}

void Decoder::validate(const DecoderConfig& config, const DecoderOptions& options) {
  config.validate();
  options.recompute.validate(config);
  if (!(options.dropout >= 0.0F && options.dropout < 1.0F)) {
    throw ConfigError(fmt::format(
        "a dropout of {}: give a probability of at least 0 (none) and below 1", options.dropout));
  }
  if (options.head_rows < 0) {
    throw ConfigError(
        fmt::format("head_rows of {}: give the number of rows at a time, or 0 for all of them",
                    options.head_rows));
  }
  if (options.head_rows > 0 && options.gather_logits != GatherLogits::off) {
    throw ConfigError(fmt::format(
        "head_rows of {} with GatherLogits::on_rank0, which needs the logits of all rows at once: "
        "leave one of them out",
        options.head_rows));
  }
}

Decoder::Decoder(Decoder&& other) noexcept = default;
Decoder& Decoder::operator=(Decoder&& other) noexcept = default;
Decoder::~Decoder() = default;

const DecoderConfig& Decoder::config() const noexcept {
  return state_->config;
}

void Decoder::declare(ShardedModel& model) {
  State& s = *state_;
  expects(s.model == nullptr,
          "Decoder::declare: already declared in a model; declare a decoder once");
  s.place = place_of(s.config, s.options, model.world(), model.options());
  s.layers.emplace(model.world(), s.config, s.options, model.options(),
                   TensorRanks{model.world(), model.options().mesh, tensor_options(s.options)});
  if (s.pipelined()) {
    s.along_pipe.emplace(Mesh{model.world(), model.options().mesh}.along("pipe").gather());
    s.stage_sent = model.world().device().make_event();
  }
  std::vector<Unit> order = s.declare_ends(model);
  const Unit last = order.back();
  order.pop_back();
  for (const DecoderStage& stage : s.place.all_stages) {
    for (std::int64_t layer = 0; layer < stage.layers; ++layer) {
      s.blocks.push_back(model.add_unit(
          fmt::format("h.{}", s.blocks.size()), s.layers->block.parameters(),
          {.gradients = GradientInit::first_write, .pipe = s.place.pipe_of(stage.index)}));
      order.push_back(s.blocks.back());
    }
  }
  order.push_back(last);
  model.declare_order(order);
  s.model = &model;
}

std::vector<Unit> Decoder::State::declare_ends(ShardedModel& to) {
  const std::vector<ParameterSpec> tables = layers->embedding.parameters();
  const std::vector<ParameterSpec> norm = layers->ln_f.parameters();
  std::vector<ParameterSpec> head = layers->embedding.head_parameters();
  const auto add = [&](std::string_view name, const std::vector<ParameterSpec>& parameters,
                       int stage) {
    return to.add_unit(std::string{name}, parameters,
                       {.kind = UnitKind::root,
                        .gradients = GradientInit::first_write,
                        .pipe = place.pipe_of(stage)});
  };
  if (!pipelined()) {
    const Unit root = add(kRootUnit, joined({tables, norm, head}), 0);
    ends = {.tokens = root, .positions = root, .head = root};
    return {root, root};
  }
  if (config.tied_head) {
    head = {tables.front()};
    head.front().tied_to = TiedTo{.unit = std::string{kTokensUnit}, .parameter = head.front().name};
  }
  const int last = place.all_stages.back().index;
  std::vector<Unit> order{ends.tokens = add(kTokensUnit, {tables.front()}, 0)};
  if (has_positions_unit()) {
    order.push_back(ends.positions = add(kPositionsUnit, {tables.back()}, 0));
  }
  order.push_back(ends.head = add(kHeadUnit, joined({norm, head}), last));
  return order;
}

const double* Decoder::loss() const noexcept {
  return state_->at.loss;
}

LossCount Decoder::count() const noexcept {
  const State& s = *state_;
  if (!s.options.masked || s.model == nullptr) { return {}; }
  return {.counted = s.counted(),
          .of = static_cast<double>(s.shape.rows()) * s.model->options().accumulate};
}

std::string gpt2_weight_name(const ParameterInfo& parameter) {
  const bool of_a_layer = parameter.unit.starts_with("h.");
  return of_a_layer ? parameter.full_name() : parameter.name;
}

}  // namespace tessera::nn
