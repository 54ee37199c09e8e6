#include <bit>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/cast/cast.hpp"
#include "kernels/support/grain.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * 1024;

// As bfloat16::from_float, without a branch, so that the compiler makes vectors of it.
bfloat16 narrow_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
  const std::uint32_t quiet = (bits >> 16U) | 0x40U;
  const bool is_nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return {static_cast<std::uint16_t>(is_nan ? quiet : rounded)};
}

void convert(const float& from, bfloat16& to) {
  to = narrow_bf16(from);
}
void convert(const float& from, float16& to) {
  to = float16::from_float(from);
}
void convert(const bfloat16& from, float& to) {
  to = from.to_float();
}
void convert(const float16& from, float& to) {
  to = from.to_float();
}
void convert(const bfloat16& from, float16& to) {
  to = float16::from_float(from.to_float());
}
void convert(const float16& from, bfloat16& to) {
  to = narrow_bf16(from.to_float());
}
template <class T>
void convert(const T& from, T& to) {
  to = from;
}

template <class To, class From>
void run(View to, ConstView from, Stream stream) {
  parallel_for(stream, to.elems, kGrain, [&](const Chunk& chunk) {
    auto* const out = static_cast<To*>(to.data);
    const auto* const in = static_cast<const From*>(from.data);
    for (std::int64_t i = chunk.first; i < chunk.last; ++i) { convert(in[i], out[i]); }
  });
}

template <class To>
void run_from(View to, ConstView from, Stream stream) {
  switch (from.dtype) {
    case DType::bf16:
      return run<To, bfloat16>(to, from, stream);
    case DType::fp16:
      return run<To, float16>(to, from, stream);
    default:
      return run<To, float>(to, from, stream);
  }
}

}  // namespace

void cast(View to, ConstView from, Stream stream) {
  expects(to.elems == from.elems, "cast: both sides have as many elements");
  expects(to.dtype != DType::fp64 && from.dtype != DType::fp64, "cast: fp64 is not converted");
  enqueue(stream, [=] {
    switch (to.dtype) {
      case DType::bf16:
        return run_from<bfloat16>(to, from, stream);
      case DType::fp16:
        return run_from<float16>(to, from, stream);
      default:
        return run_from<float>(to, from, stream);
    }
  });
}

}  // namespace tessera::kernels::cpu
