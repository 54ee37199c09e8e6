#pragma once

#include <torch/types.h>

#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tessera::torch {

/// What is recomputed: tensors in, tensors out.
using TensorFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

/// Runs `work` on `inputs` without keeping what its backward needs, and runs it again in the
/// backward pass. Gradients reach the inputs and what `work` captures, such as a module's
/// parameters. Within a ShardedModule's passes the units that `work` uses are gathered once for
/// both in the backward pass, where they are open together: recompute one unit at a time, since
/// there are few slots. Outside it is plain activation checkpointing. Calls nest. Without gradients
/// (at::NoGradGuard, an evaluation) it only runs `work`.
///
/// Outputs: those of floating point require gradients, also if neither an input nor what `work`
///          captures does, which the first run cannot know.
/// Random numbers: the second run draws what the first drew, from libtorch's default generator of
///          the CPU (and of the current CUDA device). Ranks that are threads share that generator:
///          ContractError if `work` then draws from it.
/// Errors:  ContractError if the second run returns tensors of other shapes, if `inputs` or what
///          `work` returns holds an undefined tensor, if `work` writes to an input, and in a
///          backward pass that makes a graph of its own or stops at some inputs (autograd::grad).
[[nodiscard]] std::vector<at::Tensor> recompute(TensorFunction work,
                                                const std::vector<at::Tensor>& inputs);

/// The same for a function of tensors that returns a tensor.
///
///   x = tessera::torch::recompute([&](const at::Tensor& x) { return block->forward(x); }, x);
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
