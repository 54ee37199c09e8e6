#include "kernels/update/cuda/cuda_update.cuh"
#include "kernels/update/round_weights.hpp"

namespace tessera::kernels::cuda {
namespace {

template <Rounding rounding>
struct RoundWork {
  UpdateRun run;
  Store<rounding> store;

  using Loaded = Bits;
  __device__ Bits load(std::int64_t at) const { return load_tile(run.master, DType::fp32, at); }
  __device__ void finish(std::int64_t at, const Bits& bits) const {
    store.tile(run.parameter, RoundedArray::parameter, at, unpack(bits, DType::fp32));
  }
  __device__ void one(std::int64_t i) const {
    store.one(run.parameter, RoundedArray::parameter, i, run.master[i]);
  }
};

template <Rounding rounding>
__global__ void round_kernel(UpdateRun run, const StepScalars* scalars, Cut<kTile> cut) {
  if (scalars->apply == 0) { return; }
  go_over<2>(cut, RoundWork<rounding>{run, {run, scalars->updates}});
}

}  // namespace

void round_weights(const UpdateRun& run, const StepScalars* scalars, Stream stream) {
  if (!run.parameter || run.parameter.dtype == DType::fp32) { return; }
  UpdateRun copy;
  copy = run;
  copy.gradient = {};
  copy.first = {};
  copy.second = {};
  const Cut<kTile> parts = cut_run(copy);
  const auto kernel = run.rounding == Rounding::nearest ? round_kernel<Rounding::nearest>
                                                        : round_kernel<Rounding::stochastic>;
  launch(kernel, grid_for(parts), cuda_stream(stream).open(), copy, scalars, parts);
}

}  // namespace tessera::kernels::cuda
