#pragma once

#include <benchmark/benchmark.h>

#include "tools/measure/collectives.hpp"
#include "tools/measure/comparison.hpp"

namespace tessera::bench {

/// Times `contest.ours` as Google Benchmark requires, then ours and the limits in turn, and shows
/// bytes, FLOPs, rate, limit and the ratio as counters.
void run(benchmark::State& state, const Contest& contest);

/// Runs the collective over `local` with state.range(0) ranks and state.range(1) bytes.
void run(benchmark::State& state, Collective collective);

}  // namespace tessera::bench
