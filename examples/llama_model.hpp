#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "llama_block.hpp"
#include "tessera/memory/buffer.hpp"

namespace llama {

/// Memory of the rank's device, counted as activations.
class Memory {
 public:
  explicit Memory(tessera::World& world) : world_{&world} {}

  template <class T>
  [[nodiscard]] T* take(std::int64_t elems) {
    buffers_.push_back(world_->allocate(tessera::Category::activations,
                                        static_cast<std::size_t>(elems) * sizeof(T), "llama"));
    return static_cast<T*>(buffers_.back().data());
  }
  [[nodiscard]] Values take_values(std::int64_t elems, tessera::DType dtype) {
    const auto units = static_cast<std::int64_t>(tessera::size_of(dtype));
    return {take<std::byte>(elems * units), dtype};
  }

 private:
  tessera::World* world_;
  std::vector<tessera::Buffer> buffers_;
};

/// The tables of rotary embedding, on the device.
struct RotaryTables {
  float* cosines;
  float* sines;

  RotaryTables(tessera::World& world, const Sizes& s, Memory& memory) {
    const std::int64_t head_size = s.hidden / s.heads;
    const std::int64_t elems = s.seq * head_size / 2;
    std::vector<float> cosine(static_cast<std::size_t>(elems));
    std::vector<float> sine(cosine.size());
    kernels::rotary_angles(s.seq, head_size, /*base=*/10'000.0, cosine, sine);
    cosines = memory.take<float>(elems);
    sines = memory.take<float>(elems);
    const Stream stream = world.compute_stream();
    const std::size_t bytes = cosine.size() * sizeof(float);
    world.device().copy_in(cosines, cosine.data(), bytes, stream);
    world.device().copy_in(sines, sine.data(), bytes, stream);
    stream.wait();  // the host's tables end here
  }
};

/// What one block keeps from forward to backward; its model sets x and the workspace.
inline Block::Saved take_saved(const Sizes& s, const RotaryTables& tables, tessera::DType compute,
                               Memory& memory) {
  const std::int64_t values = s.rows() * s.hidden;
  return {.x = {},
          .normed = memory.take_values(values, compute),
          .qkv = memory.take_values(3 * values, compute),
          .mixed = memory.take_values(values, compute),
          .middle = memory.take_values(values, compute),
          .middle_normed = memory.take_values(values, compute),
          .gate_up = memory.take_values(2 * s.rows() * s.wide, compute),
          .activated = memory.take_values(s.rows() * s.wide, compute),
          .inverse_rms = memory.take<float>(2 * s.rows()),
          .log_sum_exp = memory.take<float>(s.rows() * s.heads),
          .workspace = nullptr,
          .cosines = tables.cosines,
          .sines = tables.sines};
}

/// A language model of such blocks: token embedding, blocks, a last norm and a separate head.
class Model {
 public:
  /// Declares its units in `model`, which outlives this object.
  Model(tessera::ShardedModel& model, const Sizes& sizes)
      : model_{&model},
        s_{sizes},
        compute_{model.options().compute},
        memory_{model.world()},
        block_{sizes} {
    root_ = model.add_unit("root",
                           {{.name = "embedding", .shape = {s_.vocab, s_.hidden}},
                            {.name = "norm", .shape = {s_.hidden}},
                            {.name = "head", .shape = {s_.hidden, s_.vocab}}},
                           {.kind = tessera::UnitKind::root});
    std::vector<tessera::Unit> order{root_};
    for (std::int64_t layer = 0; layer < s_.layers; ++layer) {
      blocks_.push_back(model.add_unit("block." + std::to_string(layer), block_.parameters()));
      order.push_back(blocks_.back());
    }
    order.push_back(root_);
    model.declare_order(order);
    allocate();
  }

  /// Norms 1, matrices normal with a deviation of 1 / sqrt(hidden).
  [[nodiscard]] tessera::Initializer initializer(std::uint64_t seed) const {
    const float stddev = 1.0F / std::sqrt(static_cast<float>(s_.hidden));
    return [=](const tessera::ParameterInfo& p, std::int64_t first, std::span<float> out) {
      if (p.name.ends_with("norm")) { return std::fill(out.begin(), out.end(), 1.0F); }
      tessera::init::fill_normal(seed, p.id, first, stddev, out);
    };
  }

  /// One micro-batch of [batch, seq] tokens in host memory; adds its mean loss to *loss().
  void forward_backward(std::span<const std::int32_t> tokens,
                        std::span<const std::int32_t> targets) {
    tessera::World& world = model_->world();
    const Stream stream = world.compute_stream();
    world.device().copy_in(tokens_, tokens.data(), tokens.size_bytes(), stream);
    world.device().copy_in(targets_, targets.data(), targets.size_bytes(), stream);
    world.device().fill(loss_, 0, sizeof(double), stream);
    forward();
    backward();
  }

  /// Device memory, for ShardedModel::step.
  [[nodiscard]] const double* loss() const { return loss_; }

 private:
  void allocate() {
    const std::int64_t values = s_.rows() * s_.hidden;
    const RotaryTables tables{model_->world(), s_, memory_};
    float* const workspace = memory_.take<float>(kernels::attention_workspace_elems(
        s_.attention(), compute_, model_->world().compute_stream()));
    for (std::int64_t layer = 0; layer < s_.layers; ++layer) {
      saved_.push_back(take_saved(s_, tables, compute_, memory_));
      saved_.back().workspace = workspace;
    }
    for (std::int64_t layer = 0; layer <= s_.layers; ++layer) {
      residual_.push_back(memory_.take_values(values, compute_));
    }
    normed_ = memory_.take_values(values, compute_);
    inverse_rms_ = memory_.take<float>(s_.rows());
    logits_ = memory_.take_values(s_.rows() * s_.vocab, compute_);
    gradient_ = memory_.take_values(values, compute_);
    scratch_ = memory_.take_values(block_.scratch_elems(), compute_);
    tokens_ = memory_.take<std::int32_t>(s_.rows());
    targets_ = memory_.take<std::int32_t>(s_.rows());
    loss_ = memory_.take<double>(1);
  }

  void forward() {
    {
      const auto scope = model_->forward(root_);
      kernels::embedding_forward({.tokens = tokens_,
                                  .token_table = scope["embedding"],
                                  .position_table = nullptr,
                                  .y = residual_[0],
                                  .batch = s_.batch,
                                  .seq = s_.seq,
                                  .hidden = s_.hidden},
                                 scope.stream());
    }
    for (std::size_t layer = 0; layer < blocks_.size(); ++layer) {
      const auto scope = model_->forward(blocks_[layer]);
      saved_[layer].x = residual_[layer];
      block_.forward(scope, saved_[layer], residual_[layer + 1]);
    }
    const auto scope = model_->forward(root_);
    kernels::rms_norm_forward({.x = residual_.back(),
                               .weight = scope["norm"],
                               .y = normed_,
                               .inverse_rms = inverse_rms_,
                               .rows = s_.rows(),
                               .columns = s_.hidden},
                              scope.stream());
    linear(scope, "head", normed_, logits_, s_.rows());
    const auto rows = static_cast<double>(s_.rows());
    kernels::cross_entropy({.logits = logits_,
                            .targets = targets_,
                            .loss = loss_,
                            .rows = s_.rows(),
                            .classes = s_.vocab,
                            .gradient_scale = static_cast<float>(1.0 / rows),
                            .loss_scale = 1.0 / rows,
                            .dynamic_scale = model_->loss_scale()},
                           scope.stream());
  }

  void backward() {
    {
      const auto scope = model_->backward(root_);
      const Values dnormed = scratch_;
      linear_backward(scope, "head", normed_, logits_, dnormed, s_.rows());
      const auto elems = static_cast<std::size_t>(s_.rows() * s_.hidden);
      model_->world().device().fill(gradient_.data, 0, elems * tessera::size_of(compute_),
                                    scope.stream());
      kernels::rms_norm_backward({.x = residual_.back(),
                                  .weight = scope["norm"],
                                  .inverse_rms = inverse_rms_,
                                  .dy = dnormed,
                                  .dx = gradient_,
                                  .dweight = scope.grad("norm"),
                                  .rows = s_.rows(),
                                  .columns = s_.hidden},
                                 scope.stream());
    }
    for (std::size_t layer = blocks_.size(); layer-- > 0;) {
      const auto scope = model_->backward(blocks_[layer]);
      block_.backward(scope, saved_[layer], gradient_, scratch_);
    }
    const auto scope = model_->backward(root_);
    kernels::embedding_backward({.tokens = tokens_,
                                 .dy = gradient_,
                                 .dtoken_table = scope.grad("embedding"),
                                 .dposition_table = nullptr,
                                 .batch = s_.batch,
                                 .seq = s_.seq,
                                 .hidden = s_.hidden},
                                scope.stream());
  }

  tessera::ShardedModel* model_;
  Sizes s_;
  tessera::DType compute_;
  Memory memory_;
  Block block_;
  tessera::Unit root_;
  std::vector<tessera::Unit> blocks_;

  std::vector<Block::Saved> saved_;
  std::vector<Values> residual_;  // before each block, and after the last
  Values normed_;
  float* inverse_rms_ = nullptr;
  Values logits_;  // later overwritten by their gradient
  Values gradient_;
  Values scratch_;
  std::int32_t* tokens_ = nullptr;
  std::int32_t* targets_ = nullptr;
  double* loss_ = nullptr;
};

/// A rank's data in a step: each sequence counts from its own start with its own stride.
struct Text {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;

  Text(const Sizes& s, int step, int rank) {
    for (std::int64_t b = 0; b < s.batch; ++b) {
      const std::int64_t first = 7 * step + 5 * rank + 3 * b;
      const std::int64_t stride = 1 + (step + b) % 3;
      for (std::int64_t t = 0; t < s.seq; ++t) {
        tokens.push_back(static_cast<std::int32_t>((first + t * stride) % s.vocab));
        targets.push_back(static_cast<std::int32_t>((first + (t + 1) * stride) % s.vocab));
      }
    }
  }
};

}  // namespace llama
