#include "device/cpu/host_task.hpp"
#include "kernels/step_scalars/finish.hpp"

namespace tessera::kernels::cpu {

void finish_step(StepScalars* scalars, const double* sums, const FinishStep& options,
                 Stream stream) {
  device::enqueue(stream, [=] { finish(*scalars, sums, options); });
}

}  // namespace tessera::kernels::cpu
