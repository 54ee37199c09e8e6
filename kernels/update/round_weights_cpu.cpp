#include "device/cpu/host_task.hpp"
#include "kernels/update/round_weights.hpp"
#include "kernels/update/update_cpu.hpp"

namespace tessera::kernels::cpu {

void round_weights(const UpdateRun& run, const StepScalars* scalars, Stream stream) {
  device::enqueue(stream, [=] {
    if (scalars->apply == 0) { return; }
    device::parallel_for(stream, run.elems, kElementGrain, [&](const device::Chunk& chunk) {
      const UpdateRun part = run.slice(chunk.first, chunk.size());
      store_rounded(part, part.parameter, part.master, part.elems, scalars->updates,
                    RoundedArray::parameter);
    });
  });
}

}  // namespace tessera::kernels::cpu
