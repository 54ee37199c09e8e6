#include <cmath>

#include "device/cpu/host_task.hpp"
#include "kernels/adamw/adamw.hpp"
#include "kernels/update/adam_factors.hpp"
#include "kernels/update/adam_loop.hpp"
#include "kernels/update/update_cpu.hpp"

namespace tessera::kernels::cpu {

void adamw(std::span<const RuledRun<AdamW>> runs, const StepScalars* scalars, Stream stream) {
  for (const RuledRun<AdamW>& one : runs) {
    device::enqueue(stream, [=, run = one.run, hyper = one.hyper] {
      if (scalars->apply == 0) { return; }
      const AdamFactors factor = adam_factors(hyper, *scalars);
      const float decay = hyper.lr * hyper.weight_decay;
      update(run, scalars->updates, stream, [=](const FloatRun& floats) {
        adam_loop(
            floats, hyper, [=](float gradient, float) { return gradient * factor.gradient; },
            [=](float w, float m, float v) {
              return w -
                     (factor.lr_t * m / (std::sqrt(v) * factor.v_scale + hyper.eps) + decay * w);
            });
      });
    });
  }
}

}  // namespace tessera::kernels::cpu
