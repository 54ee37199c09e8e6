#include "device/cpu/host_task.hpp"
#include "kernels/sgd/sgd.hpp"
#include "kernels/update/update_cpu.hpp"

namespace tessera::kernels::cpu {
namespace {

void sgd_loop(float* __restrict weight, const float* __restrict gradient, std::int64_t elems,
              SGD hyper, float factor) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const float w = weight[i];
    weight[i] = w - hyper.lr * (gradient[i] * factor + hyper.weight_decay * w);
  }
}

void momentum_loop(float* __restrict weight, float* __restrict momentum,
                   const float* __restrict gradient, std::int64_t elems, SGD hyper, float factor) {
  for (std::int64_t i = 0; i < elems; ++i) {
    const float w = weight[i];
    const float g = gradient[i] * factor + hyper.weight_decay * w;
    const float u = hyper.momentum * momentum[i] + g;
    momentum[i] = u;
    weight[i] = w - hyper.lr * u;
  }
}

}  // namespace

void sgd(std::span<const RuledRun<SGD>> runs, const StepScalars* scalars, Stream stream) {
  for (const RuledRun<SGD>& one : runs) {
    device::enqueue(stream, [=, run = one.run, hyper = one.hyper] {
      if (scalars->apply == 0) { return; }
      const float factor = scalars->gradient_factor;
      update(run, scalars->updates, stream, [=](const FloatRun& floats) {
        if (floats.first == nullptr) {
          sgd_loop(floats.weight, floats.gradient, floats.elems, hyper, factor);
        } else {
          momentum_loop(floats.weight, floats.first, floats.gradient, floats.elems, hyper, factor);
        }
      });
    });
  }
}

}  // namespace tessera::kernels::cpu
