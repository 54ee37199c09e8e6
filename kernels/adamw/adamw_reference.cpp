#include <cmath>

#include "kernels/adamw/adamw.hpp"
#include "kernels/update/adam_factors.hpp"
#include "kernels/update/update_reference.hpp"

namespace tessera::kernels::reference {
namespace {

// This loop is written for readers: it defines the correct result for every backend. It runs at
// once.
void step(const UpdateRun& run, const AdamW& hyper, const StepScalars& scalars) {
  if (run.first_quantised) {
    return step_in_fp32(run, scalars, [&](const UpdateRun& wide) { step(wide, hyper, scalars); });
  }
  const AdamFactors factor = adam_factors(hyper, scalars);
  for (std::int64_t i = 0; i < run.elems; ++i) {
    const float g = read(run.gradient, i) * factor.gradient;
    const float m = hyper.beta1 * read(run.first, i) + (1.0F - hyper.beta1) * g;
    const float v = hyper.beta2 * read(run.second, i) + (1.0F - hyper.beta2) * g * g;
    const float w = read_weight(run, i);
    write(run, scalars, RoundedArray::first, i, m);
    write(run, scalars, RoundedArray::second, i, v);
    write_weight(run, scalars, i,
                 w - (factor.lr_t * m / (std::sqrt(v) * factor.v_scale + hyper.eps) +
                      hyper.lr * hyper.weight_decay * w));
  }
}

}  // namespace

void adamw(std::span<const RuledRun<AdamW>> runs, const StepScalars* scalars, Stream /*stream*/) {
  if (scalars->apply == 0) { return; }
  for (const auto& [run, hyper] : runs) { step(run, hyper, *scalars); }
}

}  // namespace tessera::kernels::reference
