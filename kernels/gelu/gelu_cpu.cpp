#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/support/exp.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"

// Let u = sqrt(2/pi) (x + 0.044715 x^3). Then 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), the logistic
// function, which keeps its relative precision where 1 + tanh u cancels.

namespace tessera::kernels::cpu {
namespace {

constexpr float kTwoScale = 1.5957691216F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;
// Beyond this limit the logistic function of 2u is 0 or 1 in fp32, and x^3 is still far from
// overflow.
constexpr float kForwardLimit = 12.0F;
// Beyond this limit the slope is below 1e-35 or 1 in fp32, and exp(-2u) is still finite.
constexpr float kSlopeLimit = 10.0F;

[[gnu::always_inline]] inline Vec clamp(Vec x, float limit) {
  return min(splat(limit), max(splat(-limit), x));  // a NaN, as the second operand, stays
}

/// exp(-2u), for a clamped x; `square` is x * x.
[[gnu::always_inline]] inline Vec exp_minus_2u(Vec x, Vec square) {
  return exp(x * fma(square, splat(-kTwoScale * kCubic), splat(-kTwoScale)));
}

[[gnu::always_inline]] inline Vec gelu(Vec x) {
  const Vec clamped = clamp(x, kForwardLimit);
  return x / (1.0F + exp_minus_2u(clamped, clamped * clamped));
}

[[gnu::always_inline]] inline Vec slope(Vec x) {
  x = clamp(x, kSlopeLimit);
  const Vec square = x * x;
  const Vec e = exp_minus_2u(x, square);
  const Vec logistic = 1.0F / (1.0F + e);
  const Vec rest = e * logistic;  // 1 - logistic without the cancellation
  const Vec inner = fma(square, splat(3.0F * kTwoScale * kCubic), splat(kTwoScale));
  return fma(x * inner, rest * logistic, logistic);
}

template <class T>
void forward(const T* x, T* y, std::int64_t elems) {
  for_lanes(elems,
            [=](std::int64_t i, auto lanes) { lanes.write(y + i, gelu(lanes.read(x + i))); });
}

template <class T>
void backward(const T* x, const T* dy, T* dx, std::int64_t elems) {
  for_lanes(elems, [=](std::int64_t i, auto lanes) {
    lanes.write(dx + i, lanes.read(dy + i) * slope(lanes.read(x + i)));
  });
}

}  // namespace

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream) {
  expects(x.dtype == y.dtype, "gelu_forward: x and y are of one dtype");
  device::enqueue(stream, [=] {
    with_type(x.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
        forward(x.as<T>() + chunk.first, y.as<T>() + chunk.first, chunk.size());
      });
    });
  });
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream) {
  expects(x.dtype == dy.dtype && x.dtype == dx.dtype,
          "gelu_backward: x, dy and dx are of one dtype");
  device::enqueue(stream, [=] {
    with_type(x.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
        const std::int64_t at = chunk.first;
        backward(x.as<T>() + at, dy.as<T>() + at, dx.as<T>() + at, chunk.size());
      });
    });
  });
}

}  // namespace tessera::kernels::cpu
