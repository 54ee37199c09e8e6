#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>

namespace tessera::torch {

class RankRandom;

/// How to run an operator so that it draws from a rank's generators.
enum class DrawRun : std::uint8_t {
  alone,       ///< as it is: it does not draw, or has the generator as an argument
  with_inner,  ///< so that the operators that it calls are intercepted too: they draw
  stand_in,    ///< by RankRandom::stand_in: it draws from the default generator of a CUDA device
};

/// Prepares an operator with its arguments on `stack` to draw from `random`: if it takes a
/// generator, and is given none or libtorch's default, it gets the rank's. Returns how to run it.
[[nodiscard]] DrawRun prepare_draws(RankRandom& random, const c10::OperatorHandle& op,
                                    ::torch::jit::Stack& stack);

/// Returns the device of what an operator draws: that of its tensors, or its argument `device`.
[[nodiscard]] at::Device device_of_draws(const c10::OperatorHandle& op,
                                         const ::torch::jit::Stack& stack);

/// Returns whether `op` may draw random numbers.
[[nodiscard]] bool may_draw(const c10::OperatorHandle& op);

}  // namespace tessera::torch
