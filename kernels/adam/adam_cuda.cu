#include "kernels/adam/adam.hpp"
#include "kernels/update/adam_factors.hpp"
#include "kernels/update/cuda/cuda_quantised_update.cuh"

namespace tessera::kernels::cuda {
namespace {

struct AdamRule {
  using Hyper = Adam;
  using Factors = AdamFactors;
  static constexpr int kMoments = 2;

  Hyper hyper;
  Factors factor;

  static __device__ Factors factors(const Hyper& hyper, const StepScalars& scalars) {
    return adam_factors(hyper, scalars);
  }
  __device__ void operator()(float gradient, float& w, float& m, float& v) const {
    const float g = gradient * factor.gradient + hyper.weight_decay * w;
    m = hyper.beta1 * m + (1.0F - hyper.beta1) * g;
    v = hyper.beta2 * v + (1.0F - hyper.beta2) * g * g;
    w = w - factor.lr_t * m / (sqrtf(v) * factor.v_scale + hyper.eps);
  }
};

}  // namespace

void adam(std::span<const RuledRun<Adam>> runs, const StepScalars* scalars, Stream stream) {
  step(runs, kernel_of<AdamRule>, scalars, stream);
}

}  // namespace tessera::kernels::cuda
