#include "tessera/nn/gpt.hpp"

#include <fmt/format.h>

#include <utility>

#include "nn/gpt_state.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nn {
GPT::GPT(const GPTConfig& config, GPTOptions options) {
  config.validate();
  validate(options);
  state_ = std::make_unique<State>(config, std::move(options));
}

void GPT::validate(const GPTOptions& options) {
  if (!(options.dropout >= 0.0F && options.dropout < 1.0F)) {
    throw ConfigError(fmt::format("a dropout of {}: give a probability from 0 (none) to below 1",
                                  options.dropout));
  }
  if (options.head_rows < 0) {
    throw ConfigError(fmt::format("head_rows of {}: give the rows at a time, or 0 for all of them",
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
  expects(s.model == nullptr, "GPT::declare: already declared in a model");
  s.layers.emplace(model.world(), s.config, s.options, model.options().accumulate);
  s.root = model.add_unit(std::string{kRoot},
                          joined({s.layers->embedding.parameters(), s.layers->ln_f.parameters()}),
                          {.kind = UnitKind::root, .gradients = GradientInit::first_write});
  std::vector<Unit> order{s.root};
  for (std::int64_t layer = 0; layer < s.config.layers; ++layer) {
    s.blocks.push_back(model.add_unit(fmt::format("h.{}", layer), s.layers->block.parameters(),
                                      {.gradients = GradientInit::first_write}));
    order.push_back(s.blocks.back());
  }
  order.push_back(s.root);
  model.declare_order(order);
  s.model = &model;
}

const double* GPT::loss() const noexcept {
  return state_->at.loss;
}

std::string gpt2_weight_name(const ParameterInfo& parameter) {
  return parameter.unit == kRoot ? parameter.name : parameter.full_name();
}

}  // namespace tessera::nn
