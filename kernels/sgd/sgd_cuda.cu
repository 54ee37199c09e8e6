#include "kernels/sgd/sgd.hpp"
#include "kernels/update/cuda/cuda_quantised_update.cuh"

namespace tessera::kernels::cuda {
namespace {

/// SGD with momentum (Moments = 1) or without (0).
template <int Moments>
struct SGDRule {
  using Hyper = SGD;
  using Factors = float;  // of the gradient
  static constexpr int kMoments = Moments;

  Hyper hyper;
  Factors factor;

  static __device__ Factors factors(const Hyper& /*hyper*/, const StepScalars& scalars) {
    return scalars.gradient_factor;
  }
  __device__ void operator()(float gradient, float& w, float& momentum, float& /*second*/) const {
    float u = gradient * factor + hyper.weight_decay * w;
    if constexpr (Moments > 0) {
      u = hyper.momentum * momentum + u;
      momentum = u;
    }
    w = w - hyper.lr * u;
  }
};

}  // namespace

void sgd(std::span<const RuledRun<SGD>> runs, const StepScalars* scalars, Stream stream) {
  const auto kernel_of_run = [](const UpdateRun& run) {
    const bool momentum = run.first || run.first_quantised;
    return momentum ? kernel_of<SGDRule<1>>(run) : kernel_of<SGDRule<0>>(run);
  };
  step(runs, kernel_of_run, scalars, stream);
}

}  // namespace tessera::kernels::cuda
