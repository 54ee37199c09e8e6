#include "tessera/engine/dlpack.hpp"

#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/dlpack.h"

namespace tessera {
namespace {

/// A managed tensor with the shape and the data that it points to.
struct HeldView {
  DLManagedTensor managed = {};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<const void> keep;
};

void end(DLManagedTensor* managed) {
  if (managed != nullptr) { delete static_cast<HeldView*>(managed->manager_ctx); }
}

DLDevice device_of(const Device& device) {
  expects(device.computes(),
          "to_dlpack: a simulated rank has no values to view; call it on a rank that computes");
  const std::string name = device.name();
  const std::size_t colon = name.find(':');
  if (colon == std::string::npos) { return {kDLCPU, 0}; }
  DLDevice result{kDLCUDA, 0};
  std::from_chars(name.data() + colon + 1, name.data() + name.size(), result.device_id);
  return result;
}

DLDataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  const DLDataTypeCode code = dtype == DType::bf16 ? kDLBfloat : kDLFloat;
  return {static_cast<std::uint8_t>(code), bits, 1};
}

DLManagedTensor* make(void* data, DType dtype, const Shape& shape, const Device& device,
                      std::shared_ptr<const void> keep) {
  auto view = std::make_unique<HeldView>();
  view->shape = shape.dims();
  view->strides.resize(shape.size());
  std::int64_t stride = 1;
  for (std::size_t dim = shape.size(); dim-- > 0;) {
    view->strides[dim] = stride;
    stride *= shape[dim];
  }
  view->managed.dl_tensor = {.data = data,
                             .device = device_of(device),
                             .ndim = shape.rank(),
                             .dtype = type_of(dtype),
                             .shape = view->shape.data(),
                             .strides = view->strides.data(),
                             .byte_offset = 0};
  view->managed.manager_ctx = view.get();
  view->managed.deleter = end;
  view->keep = std::move(keep);
  return &view.release()->managed;
}

}  // namespace

DLManagedTensor* to_dlpack(const ConstTensor& tensor, const Device& device,
                           std::shared_ptr<const void> keep) {
  // DLPack's pointer is not const; the consumer must not write through it.
  return make(const_cast<void*>(tensor.data()), tensor.dtype(), tensor.shape(), device,
              std::move(keep));
}

DLManagedTensor* to_dlpack(const Tensor& tensor, const Device& device,
                           std::shared_ptr<const void> keep) {
  return make(tensor.data(), tensor.dtype(), tensor.shape(), device, std::move(keep));
}

}  // namespace tessera
