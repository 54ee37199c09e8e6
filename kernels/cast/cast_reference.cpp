#include "device/cpu/host_task.hpp"
#include "kernels/cast/cast.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::reference {
namespace {

float read(ConstView view, std::int64_t i) {
  switch (view.dtype) {
    case DType::bf16:
      return static_cast<const bfloat16*>(view.data)[i].to_float();
    case DType::fp16:
      return static_cast<const float16*>(view.data)[i].to_float();
    default:
      return static_cast<const float*>(view.data)[i];
  }
}

void write(View view, std::int64_t i, float value) {
  switch (view.dtype) {
    case DType::bf16:
      static_cast<bfloat16*>(view.data)[i] = bfloat16::from_float(value);
      return;
    case DType::fp16:
      static_cast<float16*>(view.data)[i] = float16::from_float(value);
      return;
    default:
      static_cast<float*>(view.data)[i] = value;
  }
}

}  // namespace

void cast(View to, ConstView from, Stream stream) {
  enqueue(stream, [=] {
    for (std::int64_t i = 0; i < to.elems; ++i) { write(to, i, read(from, i)); }
  });
}

}  // namespace tessera::kernels::reference
