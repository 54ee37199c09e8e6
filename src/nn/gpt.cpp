#include "tessera/nn/gpt.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "kernels/table.hpp"
#include "nn/gpt_activations.hpp"
#include "nn/layer.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"
#include "tessera/nn/cross_entropy.hpp"
#include "tessera/nn/embedding.hpp"

namespace tessera::nn {
namespace {

constexpr std::string_view kRoot = "root";
constexpr std::int64_t kMostRows = std::int64_t{1} << 30;

struct Layers {
  Layers(World& world, const GPTConfig& config, int micro_batches)
      : embedding{world, {config.vocab, config.seq, config.hidden}},
        block{world, config.hidden, config.heads},
        ln_f{world, "ln_f", config.hidden},
        loss{world, config.vocab, micro_batches} {}

  Embedding embedding;
  Block block;  // one for all: its parameters are those of the scope
  LayerNorm ln_f;
  CrossEntropy loss;
};

void check_batch(const GPTConfig& config, std::int64_t batch) {
  const std::int64_t most = kMostRows / config.seq;
  if (batch >= 1 && batch <= most) { return; }
  throw ConfigError(
      fmt::format("a micro-batch of {} sequences: give a number from 1 to {}", batch, most));
}

void check_tokens(std::string_view what, std::span<const std::int32_t> tokens, std::int64_t vocab) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && tokens[i] < vocab) { continue; }
    throw ConfigError(fmt::format("{}[{}] is token {}, outside the vocabulary of {} (0 to {})",
                                  what, i, tokens[i], vocab, vocab - 1));
  }
}

bool collects(const GPTOptions& options, const World& world) {
  return options.gather_logits == GatherLogits::on_rank0 && world.rank() == 0;
}

}  // namespace

struct GPT::State {
  GPTConfig config;
  GPTOptions options;

  // From `declare` on.
  ShardedModel* model = nullptr;
  Unit root;
  std::vector<Unit> blocks;
  std::optional<Layers> layers;

  // From `reserve` on.
  BatchShape shape;
  Arena kept;
  Arena passing;
  GPTActivations at;
  Buffer gathered;
  OwnedEvent logits_ready;
  OwnedEvent logits_gathered;

  int micro_batch = 0;  // of the step
  bool forward_done = false;

  State(const GPTConfig& config_, GPTOptions options_) : config{config_}, options{options_} {}
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  [[nodiscard]] World& world() const { return model->world(); }
  void check_call(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  void load(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets);
  void gather_logits();
};

GPT::State::~State() {
  if (!logits_gathered.get()) { return; }
  // An error may have brought us here while the logits were on their way.
  try {
    world().gather_channel().stream.wait();
  } catch (const Error&) {  // ended by that error, which is known already
  }
}

GPT::GPT(const GPTConfig& config, GPTOptions options) {
  config.validate();
  state_ = std::make_unique<State>(config, options);
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
  s.layers.emplace(model.world(), s.config, model.options().accumulate);
  s.root = model.add_unit(std::string{kRoot},
                          joined({s.layers->embedding.parameters(), s.layers->ln_f.parameters()}),
                          {.kind = UnitKind::root});
  std::vector<Unit> order{s.root};
  for (std::int64_t layer = 0; layer < s.config.layers; ++layer) {
    s.blocks.push_back(model.add_unit(fmt::format("h.{}", layer), s.layers->block.parameters()));
    order.push_back(s.blocks.back());
  }
  order.push_back(s.root);
  model.declare_order(std::move(order));
  s.model = &model;
}

void GPT::reserve(std::int64_t batch) {
  State& s = *state_;
  expects(s.model != nullptr, "GPT::reserve: not declared in a model yet");
  if (s.shape.batch == batch) { return; }
  expects(s.shape.batch == 0, "GPT: every micro-batch must have as many sequences as the first");
  const GPTBytes bytes = bytes_needed(s.config, s.options, batch, s.world());

  World& world = s.world();
  Arena kept{world.allocate(Category::activations, bytes.activations, "gpt activations")};
  Arena passing{world.allocate(Category::workspace, bytes.workspace, "gpt workspace")};
  if (bytes.gather > 0) {
    s.gathered = world.allocate(Category::gather, bytes.gather, "gathered logits");
  }
  if (s.options.gather_logits == GatherLogits::on_rank0) {
    s.logits_ready = world.device().make_event();
    s.logits_gathered = world.device().make_event();
  }
  const BatchShape shape{batch, s.config.seq};
  Cutter cut_kept{kept};
  Cutter cut_passing{passing};
  s.at = cut_activations(s.config, shape, s.layers->block.workspace_elems(shape), cut_kept,
                         cut_passing);
  s.kept = std::move(kept);
  s.passing = std::move(passing);
  s.shape = shape;
}

void GPT::forward(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  State& s = *state_;
  s.check_call(inputs, targets);
  reserve(static_cast<std::int64_t>(inputs.size()) / s.config.seq);
  s.load(inputs, targets);
  {
    const auto scope = s.model->forward(s.root);
    s.layers->embedding.forward(scope, s.at.inputs, s.at.residual.front(), s.shape);
  }
  for (std::size_t layer = 0; layer < s.blocks.size(); ++layer) {
    const auto scope = s.model->forward(s.blocks[layer]);
    s.layers->block.forward(scope, s.at.blocks[layer], s.at.residual[layer + 1], s.shape);
  }
  {
    const auto scope = s.model->forward(s.root);
    s.layers->ln_f.forward(scope, s.at.ln_f, s.at.normed, s.shape.rows());
    s.layers->embedding.head(scope, s.at.normed, s.at.logits, s.shape.rows());
    s.gather_logits();
    s.layers->loss.forward(s.at.logits, s.at.targets, s.at.loss, s.shape.rows());
  }
  s.micro_batch = (s.micro_batch + 1) % s.model->options().accumulate;
  s.forward_done = true;
}

void GPT::backward() {
  State& s = *state_;
  expects(s.forward_done, "GPT::backward: no micro-batch has gone forward");
  const std::int64_t values = s.shape.rows() * s.config.hidden;
  {
    const auto scope = s.model->backward(s.root);
    s.layers->embedding.head_backward(scope, s.at.normed, s.at.logits, s.at.scratch,
                                      s.shape.rows());
    s.world().device().fill(s.at.stream, 0, static_cast<std::size_t>(values) * sizeof(float),
                            scope.stream());
    s.layers->ln_f.backward(scope, s.at.ln_f, s.at.scratch, s.at.stream, s.shape.rows());
  }
  for (std::size_t layer = s.blocks.size(); layer-- > 0;) {
    const auto scope = s.model->backward(s.blocks[layer]);
    s.layers->block.backward(scope, s.at.blocks[layer], s.at.stream, s.at.scratch, s.shape);
  }
  {
    const auto scope = s.model->backward(s.root);
    s.layers->embedding.backward(scope, s.at.inputs, s.at.stream, s.shape);
  }
  s.forward_done = false;
}

const double* GPT::loss() const noexcept {
  return state_->at.loss;
}

ConstView GPT::gathered_logits() const noexcept {
  const State& s = *state_;
  if (s.gathered.data() == nullptr) { return {}; }
  return {s.gathered.data(), s.world().size() * s.shape.rows() * s.config.vocab, DType::fp32};
}

GPTBytes GPT::bytes_needed(const GPTConfig& config, const GPTOptions& options, std::int64_t batch,
                           World& world) {
  config.validate();
  check_batch(config, batch);
  const BatchShape shape{batch, config.seq};
  const std::int64_t tiles = world.kernels().attention_workspace_elems(
      {shape.batch, shape.seq, config.heads, config.head_size()});
  Cutter kept;
  Cutter passing;
  static_cast<void>(cut_activations(config, shape, tiles, kept, passing));
  GPTBytes bytes{.activations = kept.bytes(), .workspace = passing.bytes()};
  if (collects(options, world)) {
    bytes.gather = Arena::need(static_cast<std::size_t>(world.size() * shape.rows()) *
                               static_cast<std::size_t>(config.vocab) * sizeof(float));
  }
  return bytes;
}

void GPT::State::check_call(std::span<const std::int32_t> inputs,
                            std::span<const std::int32_t> targets) {
  expects(model != nullptr, "GPT::forward: not declared in a model yet");
  expects(!forward_done, "GPT::forward: the micro-batch before has not gone backward");
  expects(inputs.size() == targets.size(), "GPT::forward: as many targets as inputs are needed");
  expects(!inputs.empty() && inputs.size() % static_cast<std::size_t>(config.seq) == 0,
          "GPT::forward: inputs must be whole sequences of config().seq tokens");
  check_tokens("inputs", inputs, config.vocab);
  check_tokens("targets", targets, config.vocab);
}

void GPT::State::load(std::span<const std::int32_t> inputs, std::span<const std::int32_t> targets) {
  Device& device = world().device();
  const Stream stream = world().compute_stream();
  device.copy_in(at.inputs, inputs.data(), inputs.size_bytes(), stream);
  device.copy_in(at.targets, targets.data(), targets.size_bytes(), stream);
  if (micro_batch == 0) { device.fill(at.loss, 0, sizeof(double), stream); }
}

// The logits turn into their gradient next, so computation waits until they have been sent.
void GPT::State::gather_logits() {
  if (options.gather_logits == GatherLogits::off) { return; }
  const std::int64_t elems = shape.rows() * config.vocab;
  const Channel channel = world().gather_channel();
  Batch batch{"gather logits"};
  batch.gather(ConstView{at.logits, elems, DType::fp32},
               View{gathered.data(), gathered.data() == nullptr ? 0 : elems * world().size()}, 0);
  world().compute_stream().record(logits_ready.get());
  channel.stream.wait_for(logits_ready.get());
  channel.communicator.submit(std::move(batch), channel.stream);
  channel.stream.record(logits_gathered.get());
  world().compute_stream().wait_for(logits_gathered.get());
}

std::string gpt2_weight_name(const ParameterInfo& parameter) {
  return parameter.unit == kRoot ? parameter.name : parameter.full_name();
}

}  // namespace tessera::nn
