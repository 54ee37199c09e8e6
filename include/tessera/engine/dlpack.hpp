#pragma once

#include <memory>

#include "tessera/device/device.hpp"
#include "tessera/engine/tensor.hpp"

struct DLManagedTensor;  // dlpack.h of DLPack, or tessera/dlpack.h

namespace tessera {

/// Returns a DLPack view (version 0.8) of a parameter, row-major without gaps, for libraries that
/// accept tensors of other libraries. The owner of the view, which is the caller or the library
/// that takes it over, calls its deleter, on any thread. `device` is the World's.
///
/// Time:    the values are ready on the scope's stream and valid until the scope ends. DLPack has
///          no means to say so: drop the view before the scope ends.
/// Memory:  the view copies nothing. Until its deleter is called it keeps `keep` alive, and nothing
///          else.
/// Errors:  ContractError if the scope has ended, and on a rank that only counts.
///
/// A parameter must only be read. DLPack has a flag for that only from version 1 on.
[[nodiscard]] DLManagedTensor* to_dlpack(const ConstTensor& tensor, const Device& device,
                                         std::shared_ptr<const void> keep = {});
/// Returns a DLPack view of a gradient, which may be read and written. It is otherwise like the
/// view of a parameter.
[[nodiscard]] DLManagedTensor* to_dlpack(const Tensor& tensor, const Device& device,
                                         std::shared_ptr<const void> keep = {});

}  // namespace tessera
