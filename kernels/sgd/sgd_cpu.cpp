#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/sgd/sgd.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {
namespace {

void update(float* __restrict weight, const float* __restrict gradient, std::int64_t elems,
            SGD hyper, float factor) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const float w = weight[i];
    weight[i] = w - hyper.lr * (gradient[i] * factor + hyper.weight_decay * w);
  }
}

void update_with_momentum(float* __restrict weight, float* __restrict momentum,
                          const float* __restrict gradient, std::int64_t elems, SGD hyper,
                          float factor) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const float w = weight[i];
    const float g = gradient[i] * factor + hyper.weight_decay * w;
    const float u = hyper.momentum * momentum[i] + g;
    momentum[i] = u;
    weight[i] = w - hyper.lr * u;
  }
}

}  // namespace

void sgd(const SGDRun& run, const SGD& hyper, const StepScalars* scalars, Stream stream) {
  enqueue(stream, [=] {
    if (scalars->apply == 0) { return; }
    const float factor = scalars->gradient_factor;
    parallel_for(stream, run.elems, kElementGrain, [&](const Chunk& chunk) {
      const std::int64_t at = chunk.first;
      if (run.momentum == nullptr) {
        update(run.weight + at, run.gradient + at, chunk.size(), hyper, factor);
      } else {
        update_with_momentum(run.weight + at, run.momentum + at, run.gradient + at, chunk.size(),
                             hyper, factor);
      }
    });
  });
}

}  // namespace tessera::kernels::cpu
