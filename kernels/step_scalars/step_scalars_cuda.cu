#include "kernels/step_scalars/finish.hpp"
#include "kernels/support/cuda/cuda_element.cuh"

namespace tessera::kernels::cuda {
namespace {

__global__ void finish_kernel(StepScalars* scalars, const double* sums, FinishStep options) {
  finish(*scalars, sums, options);
}

}  // namespace

void finish_step(StepScalars* scalars, const double* sums, const FinishStep& options,
                 Stream stream) {
  launch(finish_kernel, Grid{1, 1}, cuda_stream(stream).open(), scalars, sums, options);
}

}  // namespace tessera::kernels::cuda
