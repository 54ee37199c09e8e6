#include <cmath>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/adamw/adamw.hpp"
#include "kernels/adamw/adamw_factors.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {
namespace {

// One loop over four streams of memory, vectorised by the compiler: every operation is correctly
// rounded, so an element's bits do not depend on which lane, or which shard, it falls into.
void update(float* __restrict weight, float* __restrict m_state, float* __restrict v_state,
            const float* __restrict gradient, std::int64_t elems, AdamW hyper,
            AdamWFactors factor) {
  const float b1 = hyper.beta1;
  const float b2 = hyper.beta2;
  const float c1 = 1.0F - b1;
  const float c2 = 1.0F - b2;
  const float decay = hyper.lr * hyper.weight_decay;
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = gradient[i] * factor.gradient;
    const float m = b1 * m_state[i] + c1 * g;
    const float v = b2 * v_state[i] + c2 * g * g;
    const float w = weight[i];
    m_state[i] = m;
    v_state[i] = v;
    weight[i] = w - (factor.lr_t * m / (std::sqrt(v) * factor.v_scale + hyper.eps) + decay * w);
  }
}

}  // namespace

void adamw(const AdamWRun& run, const AdamW& hyper, const StepScalars* scalars, Stream stream) {
  enqueue(stream, [=] {
    if (scalars->apply == 0) { return; }
    const AdamWFactors factors = adamw_factors(hyper, *scalars);
    parallel_for(stream, run.elems, kElementGrain, [&](const Chunk& chunk) {
      const std::int64_t at = chunk.first;
      update(run.weight + at, run.m + at, run.v + at, run.gradient + at, chunk.size(), hyper,
             factors);
    });
  });
}

}  // namespace tessera::kernels::cpu
