#pragma once

#include <torch/nn/module.h>

namespace tessera::torch {

/// Returns whether `module` is one of libtorch's layers with parameters of its own.
[[nodiscard]] bool has_default_values(const ::torch::nn::Module& module);

/// Gives the parameters of a libtorch layer, without those of submodules, their initial values (its
/// reset_parameters). Does nothing for other modules.
void set_default_values(::torch::nn::Module& module);

/// Gives the buffers of a libtorch layer their initial values. Returns false for other modules.
bool set_default_buffers(::torch::nn::Module& module);

}  // namespace tessera::torch
