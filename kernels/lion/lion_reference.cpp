#include "kernels/lion/lion.hpp"
#include "kernels/update/update_reference.hpp"

namespace tessera::kernels::reference {
namespace {

void step(const UpdateRun& run, const Lion& hyper, const StepScalars& scalars) {
  if (run.first_quantised) {
    return step_in_fp32(run, scalars, [&](const UpdateRun& wide) { step(wide, hyper, scalars); });
  }
  for (std::int64_t i = 0; i < run.elems; ++i) {
    const float g = read(run.gradient, i) * scalars.gradient_factor;
    const float m = read(run.first, i);
    const float u = hyper.beta1 * m + (1.0F - hyper.beta1) * g;
    float sign = 0.0F;
    if (u > 0.0F) { sign = 1.0F; }
    if (u < 0.0F) { sign = -1.0F; }
    const float w = read_weight(run, i);
    write(run, scalars, RoundedArray::first, i, hyper.beta2 * m + (1.0F - hyper.beta2) * g);
    write_weight(run, scalars, i, w - (hyper.lr * sign + hyper.lr * hyper.weight_decay * w));
  }
}

}  // namespace

void lion(std::span<const RuledRun<Lion>> runs, const StepScalars* scalars, Stream /*stream*/) {
  if (scalars->apply == 0) { return; }
  for (const auto& [run, hyper] : runs) { step(run, hyper, *scalars); }
}

}  // namespace tessera::kernels::reference
