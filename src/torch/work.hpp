#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tessera/torch/shard.hpp"
#include "torch/counted_allocations.hpp"
#include "torch/intercept.hpp"
#include "torch/module_buffers.hpp"
#include "torch/module_units.hpp"
#include "torch/passes.hpp"
#include "torch/rank_random.hpp"

namespace tessera::torch {

/// What a ShardedModule owns. Members are destroyed in reverse order.
class ShardedModule::Work {
 public:
  Work(std::shared_ptr<::torch::nn::Module> module_, World& world_, ShardOptions options_);

  /// Returns the factor of the loss's gradient as a tensor on the device: the loss scale, times the
  /// ranks that are averaged if losses are sums.
  [[nodiscard]] at::Tensor loss_scale() const;
  /// The ranks over which gradients are averaged, if losses are to be added; else 1.
  [[nodiscard]] double summed_ranks() const;

  /// Runs one backward pass through the modules of all of these.
  static void backward(std::span<Work* const> all, const at::Tensor& loss, bool retain_graph);
  /// Does what zero_grad, called since the last backward pass, asks for.
  void heed_zero_grad();

  std::shared_ptr<::torch::nn::Module> module;
  World& world;
  ShardOptions options;
  std::vector<ModuleUnit> units;
  CountedAllocations allocations;
  ShardedModel model;
  Passes passes;
  ModuleBuffers buffers;
  std::shared_ptr<RankRandom> random;        // null if the rank has generators already
  std::optional<Interception> interception;  // set once the parameters are the model's
  at::Tensor loss_sum;        // over the micro-batches of this step: one fp64 on the device
  int backwards = 0;          // backward passes since the last step
  bool buffers_sent = false;  // whether this micro-batch has rank 0's
  std::vector<std::pair<std::shared_ptr<::torch::nn::Module>, bool>>
      modes;  // the modes before an evaluation
};

}  // namespace tessera::torch
