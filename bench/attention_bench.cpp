#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

// Arguments: batch, sequence, heads, head size, as in the GPT of docs/benchmarks and in GPT-2.
void attention_of(benchmark::State& state, Direction direction) {
  run(state,
      attention(direction, {state.range(0), state.range(1), state.range(2), state.range(3)}));
}
BENCHMARK_CAPTURE(attention_of, forward, Direction::forward)
    ->Args({8, 128, 4, 64})
    ->Args({1, 1024, 12, 64})
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(attention_of, backward, Direction::backward)
    ->Args({8, 128, 4, 64})
    ->Args({1, 1024, 12, 64})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
