#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

// Arguments: m, n, k of a layer: y = x w, dw += x' dy, dx = dy w'.
void matmul_of(benchmark::State& state, kernels::Transpose a, kernels::Transpose b,
               kernels::Write write) {
  run(state, matmul(state.range(0), state.range(1), state.range(2), a, b, write));
}
BENCHMARK_CAPTURE(matmul_of, forward, kernels::Transpose::no, kernels::Transpose::no,
                  kernels::Write::overwrite)
    ->Args({1024, 256, 256})
    ->Args({1024, 1024, 256})
    ->Args({1024, 256, 1024})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(matmul_of, weight_gradient, kernels::Transpose::yes, kernels::Transpose::no,
                  kernels::Write::add)
    ->Args({256, 1024, 1024})
    ->Args({1024, 256, 1024})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(matmul_of, input_gradient, kernels::Transpose::no, kernels::Transpose::yes,
                  kernels::Write::overwrite)
    ->Args({1024, 256, 1024})
    ->Args({1024, 1024, 256})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
