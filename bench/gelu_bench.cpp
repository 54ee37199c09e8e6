#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

void gelu_of(benchmark::State& state, Direction direction) {
  run(state, gelu(direction, state.range(0)));
}
BENCHMARK_CAPTURE(gelu_of, forward, Direction::forward)
    ->Arg(1024 * 1024)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(gelu_of, backward, Direction::backward)
    ->Arg(1024 * 1024)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
