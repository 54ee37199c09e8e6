#include <cmath>

#include "device/cpu/host_task.hpp"
#include "kernels/adam/adam.hpp"
#include "kernels/update/adam_factors.hpp"
#include "kernels/update/adam_loop.hpp"
#include "kernels/update/update_cpu.hpp"

namespace tessera::kernels::cpu {

void adam(std::span<const RuledRun<Adam>> runs, const StepScalars* scalars, Stream stream) {
  for (const RuledRun<Adam>& one : runs) {
    device::enqueue(stream, [=, run = one.run, hyper = one.hyper] {
      if (scalars->apply == 0) { return; }
      const AdamFactors factor = adam_factors(hyper, *scalars);
      update(run, scalars->updates, stream, [=](const FloatRun& floats) {
        adam_loop(
            floats, hyper,
            [=](float gradient, float w) {
              return gradient * factor.gradient + hyper.weight_decay * w;
            },
            [=](float w, float m, float v) {
              return w - factor.lr_t * m / (std::sqrt(v) * factor.v_scale + hyper.eps);
            });
      });
    });
  }
}

}  // namespace tessera::kernels::cpu
