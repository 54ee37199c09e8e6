#include "kernels/bias/bias.hpp"
#include "kernels/support/cuda/cuda_column_sum.cuh"

namespace tessera::kernels::cuda {
namespace {

// Blocks of 8 rows of 32 neighbouring packs. A thread stays in its columns and keeps their bias.
constexpr int kLanes = 32;
constexpr int kRows = 8;

template <class Y, class Bias>
__global__ void add_bias_kernel(Y* y, const Bias* bias, std::int64_t rows, std::int64_t columns,
                                Access access) {
  constexpr int N = kPackOf<Y, Bias>;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.x) * kLanes + static_cast<int>(threadIdx.x) % kLanes) * N;
  if (column >= columns) { return; }
  const std::int64_t count = columns - column;
  float added[N];
  load_floats(bias + column, access, count, added);
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.y) * kRows + threadIdx.x / kLanes;
       r < rows; r += static_cast<std::int64_t>(gridDim.y) * kRows) {
    Y* const at = y + r * columns + column;
    float values[N];
    load_floats(at, access, count, values);
#pragma unroll
    for (int j = 0; j < N; ++j) { values[j] += added[j]; }
    store_floats(at, access, count, values);
  }
}

template <class Dy>
struct Gradients {
  static constexpr int kSums = 1;
  static constexpr int kColumns = kPack<Dy>;

  const Dy* dy;
  std::int64_t columns;
  Access access;

  __device__ void add(std::int64_t row, std::int64_t column, float (&sums)[kColumns]) const {
    float values[kColumns];
    load_floats(dy + row * columns + column, access, columns - column, values);
#pragma unroll
    for (int j = 0; j < kColumns; ++j) { sums[j] += values[j]; }
  }
};

}  // namespace

void add_bias(Values y, ConstValues bias, std::int64_t rows, std::int64_t columns, Stream stream) {
  with_device_types(
      y.dtype, bias.dtype,
      [&]<class Y, class Bias>(std::type_identity<Y>, std::type_identity<Bias>) {
        constexpr int pack = kPackOf<Y, Bias>;
        const std::int64_t across = ceil_div(columns, std::int64_t{kLanes} * pack);
        if (across == 0) { return; }
        const std::int64_t resident =
            tessera::cuda::resident_blocks(add_bias_kernel<Y, Bias>, kLanes * kRows);
        const std::int64_t down =
            std::min(ceil_div(rows, std::int64_t{kRows}), ceil_div(resident, across));
        launch(add_bias_kernel<Y, Bias>,
               {static_cast<unsigned>(across), kLanes * kRows, static_cast<unsigned>(down)},
               cuda_stream(stream).open(), y.as<Y>(), bias.as<Bias>(), rows, columns,
               access_of(pack, columns, {y, bias}));
      });
}

void bias_gradient(ConstValues dy, Values dbias, std::int64_t rows, std::int64_t columns,
                   Write write, Stream stream) {
  with_device_type(dy.dtype, [&]<class Dy>(std::type_identity<Dy>) {
    const Gradients<Dy> terms{dy.as<Dy>(), columns, access_of(kPack<Dy>, columns, {dy})};
    add_column_sums(terms, {{dbias}, {write == Write::overwrite}}, rows, columns,
                    WorkspaceCut{stream}, stream);
  });
}

}  // namespace tessera::kernels::cuda
