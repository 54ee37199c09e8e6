#include "kernels/sgd/sgd.hpp"

namespace tessera::kernels::reference {

void sgd(const SGDRun& run, const SGD& hyper, const StepScalars* scalars, Stream) {
  if (scalars->apply == 0) { return; }
  for (std::int64_t i = 0; i < run.elems; ++i) {
    const float w = run.weight[i];
    float u = run.gradient[i] * scalars->gradient_factor + hyper.weight_decay * w;
    if (run.momentum != nullptr) {
      u = hyper.momentum * run.momentum[i] + u;
      run.momentum[i] = u;
    }
    run.weight[i] = w - hyper.lr * u;
  }
}

}  // namespace tessera::kernels::reference
