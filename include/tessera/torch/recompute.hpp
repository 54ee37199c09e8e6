#pragma once

#include <torch/types.h>

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::torch {

/// A function to recompute: it takes tensors and returns tensors.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Runs `work` on `inputs` without keeping its activations, and runs it again in the backward pass.
/// Gradients reach the inputs and whatever `work` captures, such as a module's parameters. Calls
/// nest. Without gradients (at::NoGradGuard, an evaluation) it only runs `work`.
///
/// In the passes of a ShardedModule the backward pass gathers the units of `work` once, for the
/// second run and for its gradients, and keeps them open together. Recompute one unit at a time,
/// since there are few slots. Elsewhere it is plain activation checkpointing.
///
/// Outputs: tensors of floating point require gradients, even if neither an input nor a captured
///          tensor does, since the first run cannot know that.
/// Random numbers: the second run draws the same numbers as the first, from the rank's generator
///          (RandomNumbers), or outside passes from libtorch's default generator of the CPU and of
///          the current CUDA device. A generator that `work` passes itself is `work`'s own.
/// Buffers: tensors that `work` writes and did not make, such as the running statistics of a
///          BatchNorm or a counter, change once: the second run starts from the values at the start
///          of the first, and the backward pass then restores the values from before it, also if
///          it fails. A user's own operator must declare what it writes.
/// Errors:  ContractError if the second run returns tensors of other shapes, if `inputs` or the
///          result of `work` has an undefined tensor, if `work` writes to an input, if a tensor
///          that it writes and did not make is resized before the end of the backward pass, and in
///          a backward pass that makes a graph of its own or stops at some inputs (autograd::grad).
[[nodiscard]] std::vector<at::Tensor> recompute(TensorFunction work,
                                                const std::vector<at::Tensor>& inputs);

/// Runs a function of tensors that returns one tensor, and runs it again in the backward pass, as
/// the function above.
///
///     x = tessera::torch::recompute([&](const at::Tensor& x) { return block->forward(x); }, x);
template <class Work, class... Inputs>
  requires std::is_invocable_r_v<at::Tensor, Work&, const at::Tensor&, const Inputs&...>
[[nodiscard]] at::Tensor recompute(Work work, const at::Tensor& first, const Inputs&... rest) {
  auto call = [work = std::move(work)](const std::vector<at::Tensor>& in) mutable {
    const auto apply = [&]<std::size_t... I>(std::index_sequence<I...>) { return work(in[I]...); };
    return std::vector<at::Tensor>{apply(std::make_index_sequence<1 + sizeof...(Inputs)>{})};
  };
  return recompute(TensorFunction{std::move(call)}, std::vector<at::Tensor>{first, rest...})[0];
}

}  // namespace tessera::torch
