#include "bench/google.hpp"
#include "tools/measure/operations.hpp"

namespace tessera::bench {
namespace {

void cross_entropy_of(benchmark::State& state) {
  run(state, cross_entropy(state.range(0), state.range(1)));
}
BENCHMARK(cross_entropy_of)->Args({1024, 1024})->Args({64, 50'257})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tessera::bench
