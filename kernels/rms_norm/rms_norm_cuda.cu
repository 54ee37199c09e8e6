#include <algorithm>
#include <initializer_list>

#include "kernels/rms_norm/rms_norm.hpp"
#include "kernels/support/cuda/cuda_norm_backward.cuh"
#include "kernels/support/cuda/cuda_rows.cuh"
#include "kernels/support/row_groups.hpp"

namespace tessera::kernels::cuda {
namespace {

template <class T, class Weight>
struct RMSForwardArgs {
  const T* x;
  const Weight* weight;
  T* y;
  float* inverse_rms;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t group;
  std::int64_t x_group_elems;
  std::int64_t y_group_elems;
  double inverse_columns;
  float eps;
  int threads;
};

template <class T, class Weight, Access access>
__global__ void __launch_bounds__(kMostRowThreads, kRowBlocks<access>)
    rms_forward_kernel(RMSForwardArgs<T, Weight> args) {
  constexpr int N = kPack<T>;
  __shared__ double shared[kMostWarps];
  RowThreads<T, access> threads{args.threads, args.columns};
  const std::int64_t columns = args.columns;

  for (std::int64_t r = threads.first_row(); r < args.rows; r += threads.row_stride()) {
    const GroupedRow row = GroupedRow::of(r, args.group);
    threads.load(args.x + row.begin(args.x_group_elems, columns));
    float squares = 0.0F;
    threads.for_packs([&](const float(&values)[N], std::int64_t) {
#pragma unroll
      for (int j = 0; j < N; ++j) { squares = fmaf(values[j], values[j], squares); }
    });
    const float square = threads.mean(squares, args.inverse_columns, shared);
    const float inverse_rms = 1.0F / sqrtf(square + args.eps);
    T* const to = args.y + row.begin(args.y_group_elems, columns);
    threads.for_packs([&](const float(&values)[N], std::int64_t c) {
      float weight[N];
      float y[N];
      load_floats(args.weight + c, access, columns - c, weight);
#pragma unroll
      for (int j = 0; j < N; ++j) { y[j] = values[j] * inverse_rms * weight[j]; }
      store_floats(to + c, access, columns - c, y);
    });
    if (threads.index == 0) { args.inverse_rms[r] = inverse_rms; }
  }
}

/// Single elements where groups do not start at multiples of 16 bytes.
template <class T>
Access access_to_groups(Access access, std::initializer_list<std::int64_t> group_elems) {
  const bool whole = std::all_of(group_elems.begin(), group_elems.end(),
                                 [](std::int64_t elems) { return elems % kPack<T> == 0; });
  return whole ? access : Access::singles;
}

}  // namespace

void rms_norm_forward(const RMSNormForward& args, Stream stream) {
  WorkspaceCut workspace{stream};
  const ConstValues weight = widened(args.weight, args.x.dtype, args.columns, workspace, stream);
  const std::int64_t x_groups = group_elems_of(args.x_group_elems, args.group, args.columns);
  const std::int64_t y_groups = group_elems_of(args.y_group_elems, args.group, args.columns);
  with_types_of_rows(
      args.x.dtype, weight.dtype,
      [&]<class T, class Weight>(std::type_identity<T>, std::type_identity<Weight>) {
        const int threads = row_threads(args.columns, kForwardElems<T>);
        const Access access = access_to_groups<T>(
            access_of(kPack<T>, args.columns, {args.x, weight, args.y}), {x_groups, y_groups});
        const auto kernel = access == Access::packs
                                ? rms_forward_kernel<T, Weight, Access::packs>
                                : rms_forward_kernel<T, Weight, Access::singles>;
        launch(kernel, row_grid(args.rows, threads), cuda_stream(stream).open(),
               RMSForwardArgs<T, Weight>{
                   args.x.as<T>(), weight.as<Weight>(), args.y.as<T>(), args.inverse_rms, args.rows,
                   args.columns, args.group, x_groups, y_groups,
                   1.0 / static_cast<double>(args.columns), args.eps, threads});
      });
}

void rms_norm_backward(const RMSNormBackward& args, Stream stream) {
  const std::int64_t x_groups = group_elems_of(args.x_group_elems, args.group, args.columns);
  const std::int64_t dy_groups = group_elems_of(args.dy_group_elems, args.group, args.columns);
  const std::int64_t dx_groups = group_elems_of(args.dx_group_elems, args.group, args.columns);
  with_device_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
    norm_backward<Centring::none>(
        NormBackward<T>{.x = args.x.as<T>(),
                        .weight = args.weight,
                        .mean = nullptr,
                        .scale = args.inverse_rms,
                        .dy = args.dy.as<T>(),
                        .dx = args.dx.as<T>(),
                        .rows = args.rows,
                        .columns = args.columns,
                        .access = access_to_groups<T>(
                            access_of(kPack<T>, args.columns, {args.x, args.dy, args.dx}),
                            {x_groups, dy_groups, dx_groups}),
                        .dx_write = args.dx_write,
                        .groups = {args.group, x_groups, dy_groups, dx_groups}},
        {{args.dweight}}, stream);
  });
}

}  // namespace tessera::kernels::cuda
