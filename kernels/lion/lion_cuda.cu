#include "kernels/lion/lion.hpp"
#include "kernels/update/cuda/cuda_quantised_update.cuh"

namespace tessera::kernels::cuda {
namespace {

struct LionRule {
  using Hyper = Lion;
  using Factors = float;  // of the gradient
  static constexpr int kMoments = 1;

  Hyper hyper;
  Factors factor;

  static __device__ Factors factors(const Hyper& /*hyper*/, const StepScalars& scalars) {
    return scalars.gradient_factor;
  }
  __device__ void operator()(float gradient, float& w, float& m, float& /*second*/) const {
    const float g = gradient * factor;
    const float u = hyper.beta1 * m + (1.0F - hyper.beta1) * g;
    m = hyper.beta2 * m + (1.0F - hyper.beta2) * g;
    const float down = u < 0.0F ? -hyper.lr : 0.0F;
    w = w - ((u > 0.0F ? hyper.lr : down) + hyper.lr * hyper.weight_decay * w);
  }
};

}  // namespace

void lion(std::span<const RuledRun<Lion>> runs, const StepScalars* scalars, Stream stream) {
  step(runs, kernel_of<LionRule>, scalars, stream);
}

}  // namespace tessera::kernels::cuda
