#include "tessera/nn/gpt.hpp"

#include <fmt/format.h>

#include <utility>

#include "nn/gpt_state.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/mesh.hpp"

namespace tessera::nn {
GPT::GPT(const GPTConfig& config, GPTOptions options) {
  config.validate();
  validate(options);
  state_ = std::make_unique<State>(config, std::move(options));
}

void GPT::validate(const GPTOptions& options) {
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

GPT::GPT(GPT&& other) noexcept = default;
GPT& GPT::operator=(GPT&& other) noexcept = default;
GPT::~GPT() = default;

const GPTConfig& GPT::config() const noexcept {
  return state_->config;
}

void GPT::declare(ShardedModel& model) {
  State& s = *state_;
  expects(s.model == nullptr, "GPT::declare: already declared in a model; declare a GPT once");
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
  for (const GPTStage& stage : s.place.all_stages) {
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

std::vector<Unit> GPT::State::declare_ends(ShardedModel& to) {
  const std::vector<ParameterSpec> tables = layers->embedding.parameters();
  const std::vector<ParameterSpec> norm = layers->ln_f.parameters();
  const auto add = [&](std::string_view name, const std::vector<ParameterSpec>& parameters,
                       int stage) {
    return to.add_unit(std::string{name}, parameters,
                       {.kind = UnitKind::root,
                        .gradients = GradientInit::first_write,
                        .pipe = place.pipe_of(stage)});
  };
  if (!pipelined()) {
    const Unit root = add(kRootUnit, joined({tables, norm}), 0);
    ends = {.tokens = root, .positions = root, .head = root};
    return {root, root};
  }
  ParameterSpec tied = tables.front();
  tied.tied_to = TiedTo{.unit = std::string{kTokensUnit}, .parameter = tied.name};
  ends.tokens = add(kTokensUnit, {tables.front()}, 0);
  ends.positions = add(kPositionsUnit, {tables.back()}, 0);
  ends.head = add(kHeadUnit, joined({norm, {tied}}), place.all_stages.back().index);
  return {ends.tokens, ends.positions, ends.head};
}

const double* GPT::loss() const noexcept {
  return state_->at.loss;
}

std::string gpt2_weight_name(const ParameterInfo& parameter) {
  const bool of_a_layer = parameter.unit.starts_with("h.");
  return of_a_layer ? parameter.full_name() : parameter.name;
}

}  // namespace tessera::nn
