#include "kernels/gelu/gelu.hpp"
#include "kernels/support/cuda/cuda_map.cuh"

// 0.5 (1 + tanh u) is the logistic function of 2u, as on the CPU. The exponential and the division
// are CUDA's.

namespace tessera::kernels::cuda {
namespace {

constexpr float kTwoScale = 1.5957691216F;  // 2 sqrt(2/pi)
constexpr float kCubic = 0.044715F;
// Beyond this limit the logistic function of 2u is 0 or 1 in fp32, and x^3 is still far from
// overflow.
constexpr float kForwardLimit = 12.0F;
// Beyond this limit the slope is below 1e-35 or 1 in fp32, and exp(-2u) is still finite.
constexpr float kSlopeLimit = 10.0F;

/// Clamps x to [-limit, limit]; NaN stays NaN.
__device__ float clamp(float x, float limit) {
  return fabsf(x) > limit ? copysignf(limit, x) : x;
}

/// exp(-2u), for a clamped x; `square` is x * x.
__device__ float exp_minus_2u(float x, float square) {
  return expf(x * fmaf(square, -kTwoScale * kCubic, -kTwoScale));
}

struct Gelu {
  __device__ float operator()(const float (&in)[1]) const {
    const float clamped = clamp(in[0], kForwardLimit);
    return in[0] * (1.0F / (1.0F + exp_minus_2u(clamped, clamped * clamped)));
  }
};

struct GeluGradient {
  __device__ float operator()(const float (&in)[2]) const {
    const float x = clamp(in[0], kSlopeLimit);
    const float square = x * x;
    const float e = exp_minus_2u(x, square);
    const float logistic = 1.0F / (1.0F + e);
    const float rest = e * logistic;  // 1 - logistic without the cancellation
    const float inner = fmaf(square, 3.0F * kTwoScale * kCubic, kTwoScale);
    return in[1] * fmaf(x * inner, rest * logistic, logistic);
  }
};

}  // namespace

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream) {
  expects(x.dtype == y.dtype, "gelu_forward: x and y are of one dtype");
  with_device_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    map<Gelu>(Inputs<T, 1>{{x.as<T>()}}, y.as<T>(), elems, stream);
  });
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream) {
  expects(x.dtype == dy.dtype && x.dtype == dx.dtype,
          "gelu_backward: x, dy and dx are of one dtype");
  with_device_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    map<GeluGradient>(Inputs<T, 2>{{x.as<T>(), dy.as<T>()}}, dx.as<T>(), elems, stream);
  });
}

}  // namespace tessera::kernels::cuda
