#include "device/cpu/host_task.hpp"
#include "kernels/lion/lion.hpp"
#include "kernels/update/update_cpu.hpp"

namespace tessera::kernels::cpu {
namespace {

void lion_loop(float* __restrict weight, float* __restrict m_state,
               const float* __restrict gradient, std::int64_t elems, Lion hyper, float factor) {
  const float c1 = 1.0F - hyper.beta1;
  const float c2 = 1.0F - hyper.beta2;
  const float decay = hyper.lr * hyper.weight_decay;
  for (std::int64_t i = 0; i < elems; ++i) {
    const float g = gradient[i] * factor;
    const float m = m_state[i];
    const float u = hyper.beta1 * m + c1 * g;
    const float w = weight[i];
    m_state[i] = hyper.beta2 * m + c2 * g;
    const float down = u < 0.0F ? -hyper.lr : 0.0F;
    weight[i] = w - ((u > 0.0F ? hyper.lr : down) + decay * w);
  }
}

}  // namespace

void lion(std::span<const RuledRun<Lion>> runs, const StepScalars* scalars, Stream stream) {
  for (const RuledRun<Lion>& one : runs) {
    device::enqueue(stream, [=, run = one.run, hyper = one.hyper] {
      if (scalars->apply == 0) { return; }
      const float factor = scalars->gradient_factor;
      update(run, scalars->updates, stream, [=](const FloatRun& floats) {
        lion_loop(floats.weight, floats.first, floats.gradient, floats.elems, hyper, factor);
      });
    });
  }
}

}  // namespace tessera::kernels::cpu
