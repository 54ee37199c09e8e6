#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

void layer_norm_rows(benchmark::State& state, Direction direction) {
  run(state, layer_norm(direction, state.range(0), state.range(1)));
}
BENCHMARK_CAPTURE(layer_norm_rows, forward, Direction::forward)
    ->Args({1024, 256})
    ->Args({4096, 768})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(layer_norm_rows, backward, Direction::backward)
    ->Args({1024, 256})
    ->Args({4096, 768})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
