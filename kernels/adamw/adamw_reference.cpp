#include <cmath>

#include "kernels/adamw/adamw.hpp"
#include "kernels/adamw/adamw_factors.hpp"

namespace tessera::kernels::reference {

// Written to be read: this loop is what "right" means for every backend. It runs at once.
void adamw(const AdamWRun& run, const AdamW& hyper, const StepScalars* scalars, Stream) {
  if (scalars->apply == 0) { return; }
  const AdamWFactors factor = adamw_factors(hyper, *scalars);
  for (std::int64_t i = 0; i < run.elems; ++i) {
    const float g = run.gradient[i] * factor.gradient;
    const float m = hyper.beta1 * run.m[i] + (1.0F - hyper.beta1) * g;
    const float v = hyper.beta2 * run.v[i] + (1.0F - hyper.beta2) * g * g;
    const float w = run.weight[i];
    run.m[i] = m;
    run.v[i] = v;
    run.weight[i] = w - (factor.lr_t * m / (std::sqrt(v) * factor.v_scale + hyper.eps) +
                         hyper.lr * hyper.weight_decay * w);
  }
}

}  // namespace tessera::kernels::reference
