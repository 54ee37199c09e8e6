#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

// Sizes range from the second-level cache to main memory.
void squared_norm_of(benchmark::State& state) {
  run(state, squared_norm(state.range(0)));
}
BENCHMARK(squared_norm_of)->Arg(100'000)->Arg(50'000'000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
