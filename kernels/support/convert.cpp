#include "kernels/support/convert.hpp"

#include <cstring>

#include "kernels/support/vec.hpp"

namespace tessera::kernels {
namespace {

template <class From, class To>
void convert(To* to, const From* from, std::int64_t elems) {
  for_lanes(elems, [=](std::int64_t i, auto lanes) { lanes.write(to + i, lanes.read(from + i)); });
}

}  // namespace

void widen(float* to, ConstValues from, std::int64_t elems) noexcept {
  switch (from.dtype) {
    case DType::bf16:
      return convert(to, from.as<bfloat16>(), elems);
    case DType::fp16:
      return convert(to, from.as<float16>(), elems);
    default:
      if (elems > 0) {
        std::memcpy(to, from.data, static_cast<std::size_t>(elems) * sizeof(float));
      }
  }
}

void narrow(Values to, const float* from, std::int64_t elems) noexcept {
  switch (to.dtype) {
    case DType::bf16:
      return convert(to.as<bfloat16>(), from, elems);
    case DType::fp16:
      return convert(to.as<float16>(), from, elems);
    default:
      if (elems > 0) {
        std::memcpy(to.data, from, static_cast<std::size_t>(elems) * sizeof(float));
      }
  }
}

}  // namespace tessera::kernels
