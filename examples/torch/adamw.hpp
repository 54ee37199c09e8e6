#pragma once

#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

/// AdamW with libtorch's operators. torch::optim::AdamW is the same rule with other roundings, so
/// losses would agree only to rounding; this one rounds as docs/optimizer-formulas.md says, like a
/// fused kernel that reads each number once.
class PlainAdamW {
 public:
  explicit PlainAdamW(std::vector<torch::Tensor> parameters, float lr = 3e-4F,
                      float weight_decay = 0.1F)
      : parameters_{std::move(parameters)}, lr_{lr}, weight_decay_{weight_decay} {
    for (const torch::Tensor& parameter : parameters_) {
      m_.push_back(torch::zeros_like(parameter, torch::kFloat));
      v_.push_back(torch::zeros_like(parameter, torch::kFloat));
    }
  }

  void zero_grad() {
    for (torch::Tensor& parameter : parameters_) { parameter.mutable_grad() = torch::Tensor{}; }
  }

  /// Matrices decay, biases and norms do not.
  void step() {
    const torch::NoGradGuard no_grad;
    ++updates_;
    const auto lr = static_cast<float>(lr_ / (1.0 - power(kBeta1, updates_)));
    const auto scale = static_cast<float>(1.0 / std::sqrt(1.0 - power(kBeta2, updates_)));
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      torch::Tensor& w = parameters_[i];
      const torch::Tensor& g = w.grad();
      if (!g.defined()) { continue; }
      const float decay = w.dim() > 1 ? lr_ * weight_decay_ : 0.0F;
      m_[i].mul_(kBeta1).add_(g * (1.0F - kBeta1));
      v_[i].mul_(kBeta2).add_(g * (1.0F - kBeta2) * g);
      w.sub_(m_[i] * lr / (root(v_[i]) * scale + kEps) + w * decay);
    }
  }

 private:
  static constexpr float kBeta1 = 0.9F;
  static constexpr float kBeta2 = 0.95F;
  static constexpr float kEps = 1e-8F;

  /// The correctly rounded root. For fp32, libtorch built with MKL calls MKL's root, which is off
  /// by an ulp for some numbers on some processors. A root in fp64 may be off too, but no fp32
  /// number has a root so close to the middle of two others that it would then round to the wrong
  /// one.
  static torch::Tensor root(const torch::Tensor& x) {
    return x.to(torch::kDouble).sqrt().to(torch::kFloat);
  }

  static double power(double base, std::int64_t exponent) {
    double result = 1.0;
    for (; exponent > 0; exponent /= 2) {
      if (exponent % 2 != 0) { result *= base; }
      base *= base;
    }
    return result;
  }

  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> m_;
  std::vector<torch::Tensor> v_;
  std::int64_t updates_ = 0;
  float lr_;
  float weight_decay_;
};
