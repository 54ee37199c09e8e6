#pragma once

#include <memory>

#include "tessera/device/device.hpp"
#include "tessera/engine/tensor.hpp"

struct DLManagedTensor;  // dlpack.h of DLPack, or tessera/dlpack.h

namespace tessera {

/// Returns a DLPack view (version 0.8) of a parameter or a gradient, row-major without gaps, for
/// libraries that take tensors of others. The caller, or the library that takes it over, calls its
/// deleter, on any thread. `device` is the World's.
///
/// Time:    the values are ready on the scope's stream, and are the tensor's until the scope ends.
///          DLPack has no way to tell its taker: drop the view before the scope.
/// Memory:  the view copies nothing. It keeps `keep` until its deleter is called, and nothing else.
/// Errors:  ContractError if the scope has ended, and on a rank that only counts.
///
/// A parameter must only be read, which DLPack cannot say before its version 1.
[[nodiscard]] DLManagedTensor* to_dlpack(const ConstTensor& tensor, const Device& device,
                                         std::shared_ptr<const void> keep = {});
/// The same of a gradient, which may be written too.
[[nodiscard]] DLManagedTensor* to_dlpack(const Tensor& tensor, const Device& device,
                                         std::shared_ptr<const void> keep = {});

}  // namespace tessera
