#include "bench/google.hpp"

namespace tessera::bench {
namespace {

// Arguments: ranks, bytes.
void local_reduce_scatter(benchmark::State& state) {
  run(state, Collective::reduce_scatter);
}
BENCHMARK(local_reduce_scatter)
    ->Args({2, 64 << 10})
    ->Args({2, 64 << 20})
    ->Args({8, 64 << 20})
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
