#include "kernels/update/round_weights.hpp"
#include "kernels/update/update_reference.hpp"

namespace tessera::kernels::reference {

void round_weights(const UpdateRun& run, const StepScalars* scalars, Stream) {
  if (scalars->apply == 0) { return; }
  for (std::int64_t i = 0; i < run.elems; ++i) { write_weight(run, *scalars, i, run.master[i]); }
}

}  // namespace tessera::kernels::reference
