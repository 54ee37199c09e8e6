#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

// Sizes range from the second-level cache to main memory.
void adamw_update(benchmark::State& state) {
  run(state, adamw(state.range(0)));
}
BENCHMARK(adamw_update)
    ->Arg(100'000)
    ->Arg(5'000'000)
    ->Arg(50'000'000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
