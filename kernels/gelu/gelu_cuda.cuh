#pragma once

// The forms of GELU on CUDA: gelu.hpp has their error bounds. The exponentials and the division are
// CUDA's own.
namespace tessera::kernels::cuda {

/// A function's value and its slope.
struct Activated {
  float value;
  float slope;
};

/// 0.5 (1 + tanh u) is the logistic function of 2u, as on the CPU.
class GeluTanh {
 public:
  __device__ static float value(float x) {
    const float clamped = clamp(x, kForwardLimit);
    return x * (1.0F / (1.0F + exp_minus_2u(clamped, clamped * clamped)));
  }
  /// The values far left of zero are below 1e-36 instead of 0.
  __device__ static Activated value_and_slope(float all) {
    const float x = clamp(all, kSlopeLimit);
    const float square = x * x;
    const float e = exp_minus_2u(x, square);
    const float logistic = 1.0F / (1.0F + e);
    const float rest = e * logistic;  // 1 - logistic without the cancellation
    const float inner = fmaf(square, 3.0F * kTwoScale * kCubic, kTwoScale);
    return {(all < -kSlopeLimit ? -kSlopeLimit : all) * logistic,
            fmaf(x * inner, rest * logistic, logistic)};
  }

 private:
  static constexpr float kTwoScale = 1.5957691216F;  // 2 sqrt(2/pi)
  static constexpr float kCubic = 0.044715F;
  // Beyond this limit the logistic function of 2u is 0 or 1 in fp32, and x^3 is still far from
  // overflow.
  static constexpr float kForwardLimit = 12.0F;
  // Beyond this limit the slope is below 1e-35 or 1 in fp32, and exp(-2u) is still finite.
  static constexpr float kSlopeLimit = 10.0F;

  /// Clamps x to [-limit, limit]; NaN stays NaN.
  __device__ static float clamp(float x, float limit) {
    return fabsf(x) > limit ? copysignf(limit, x) : x;
  }
  /// exp(-2u), for a clamped x; `square` is x * x.
  __device__ static float exp_minus_2u(float x, float square) {
    return expf(x * fmaf(square, -kTwoScale * kCubic, -kTwoScale));
  }
};

/// erfcf keeps its relative precision far left of zero, where 1 + erff cancels.
class GeluExact {
 public:
  __device__ static float value(float x) { return x * below(x); }
  __device__ static float slope(float x) {
    const float density = kDensityAtZero * expf(x * x * -0.5F);
    return density == 0.0F ? below(x) : fmaf(x, density, below(x));  // also for infinities
  }

 private:
  static constexpr float kDensityAtZero = 0.3989422804F;  // 1 / sqrt(2 pi)
  static constexpr float kInverseRoot2 = 0.7071067812F;

  /// The probability of a normal value below x.
  __device__ static float below(float x) { return 0.5F * erfcf(x * -kInverseRoot2); }
};

}  // namespace tessera::kernels::cuda
