#include "kernels/sgd/sgd.hpp"
#include "kernels/update/update_reference.hpp"

namespace tessera::kernels::reference {
namespace {

void step(const UpdateRun& run, const SGD& hyper, const StepScalars& scalars) {
  if (run.first_quantised) {
    return step_in_fp32(run, scalars, [&](const UpdateRun& wide) { step(wide, hyper, scalars); });
  }
  for (std::int64_t i = 0; i < run.elems; ++i) {
    const float w = read_weight(run, i);
    float u = read(run.gradient, i) * scalars.gradient_factor + hyper.weight_decay * w;
    if (run.first) {
      u = hyper.momentum * read(run.first, i) + u;
      write(run, scalars, RoundedArray::first, i, u);
    }
    write_weight(run, scalars, i, w - hyper.lr * u);
  }
}

}  // namespace

void sgd(std::span<const RuledRun<SGD>> runs, const StepScalars* scalars, Stream /*stream*/) {
  if (scalars->apply == 0) { return; }
  for (const auto& [run, hyper] : runs) { step(run, hyper, *scalars); }
}

}  // namespace tessera::kernels::reference
