#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "tessera/tessera.hpp"
#include "tessera/torch.hpp"

/// The results of a run on rank 0.
struct Run {
  int status = 0;
  std::vector<double> losses;
  tessera::JobMemory memory;
};

/// Builds and trains a module on every rank, and returns rank 0's results. `train(world, module)`
/// returns the losses.
template <class Build, class Train>
Run on_ranks(int ranks, const Build& build, const Train& train) {
  Run run;
  run.status = tessera::torch::run(build,
                                   [&](tessera::World& world, auto& module) {
                                     std::vector<double> losses = train(world, module);
                                     tessera::JobMemory memory = tessera::gather_memory(world);
                                     if (world.rank() == 0) {
                                       run.losses = std::move(losses);
                                       run.memory = std::move(memory);
                                     }
                                   },
                                   {.ranks = ranks});
  return run;
}

/// Prints losses beside those of libtorch alone, and each rank's peak beside ddp's. Returns the
/// exit status: 1 unless the losses agree and have fallen.
inline int print_beside(const std::vector<double>& alone, const Run& ddp, const Run& run,
                        const std::string& strategy) {
  const std::size_t ranks = run.memory.ranks.size();
  double difference = 0.0;
  std::printf("step  libtorch alone  %s on %zu ranks\n", strategy.c_str(), ranks);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    difference = std::max(difference, std::abs(run.losses[i] / alone[i] - 1.0));
    if (i % 10 == 0 || i + 1 == alone.size()) {
      std::printf("%4zu  %14.9f  %.9f\n", i + 1, alone[i], run.losses[i]);
    }
  }
  std::printf("largest relative difference: %.1e\n\n", difference);
  std::printf("rank  peak under ddp  under %s\n", strategy.c_str());
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    std::printf("%4zu  %10zu KiB  %zu KiB\n", rank, ddp.memory.ranks[rank].peak_bytes / 1024,
                run.memory.ranks[rank].peak_bytes / 1024);
  }
  // One rank gives the bits of libtorch alone; several add in another order.
  const bool agree = ranks == 1 ? difference == 0.0 : difference <= 1e-5;
  if (!agree) { std::printf("the losses do NOT agree\n"); }
  return agree && run.losses.back() < 0.9 * run.losses.front() ? 0 : 1;
}
