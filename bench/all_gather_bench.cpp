#include "bench/google.hpp"

namespace tessera::bench {
namespace {

// Arguments: ranks, bytes.
void local_all_gather(benchmark::State& state) {
  run(state, Collective::all_gather);
}
BENCHMARK(local_all_gather)
    ->Args({2, 64 << 10})
    ->Args({2, 64 << 20})
    ->Args({8, 64 << 20})
    ->Iterations(20)
    ->UseManualTime()
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
