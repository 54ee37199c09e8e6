#include "bench/google.hpp"

namespace tessera::bench {
namespace {

// Arguments: ranks, bytes.
void local_all_reduce(benchmark::State& state) {
  run(state, Collective::all_reduce);
}
BENCHMARK(local_all_reduce)
    ->Args({2, 64 << 10})
    ->Args({2, 64 << 20})
    ->Args({8, 64 << 20})
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
