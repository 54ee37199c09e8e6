#pragma once

#include <torch/nn/module.h>

namespace tessera::torch {

/// Returns whether `module` is one of libtorch's layers that have parameters of their own.
[[nodiscard]] bool has_default_values(const ::torch::nn::Module& module);

/// Gives the parameters that a layer of libtorch's itself has the values that it is built with
/// (its reset_parameters). Does nothing for other modules.
void set_default_values(::torch::nn::Module& module);

/// Gives the buffers of a layer of libtorch's the values that it is built with. Returns false for
/// other modules.
bool set_default_buffers(::torch::nn::Module& module);

}  // namespace tessera::torch
