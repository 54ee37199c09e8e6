#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tessera/world/world_options.hpp"

namespace tessera::bench {

/// A collective of a job's ranks at one size.
struct JobCollective {
  std::string name;
  int ranks = 0;
  std::int64_t bytes = 0;  ///< of the whole tensor, fp32
  double seconds = 0;      ///< of one call, on average over the ranks

  /// The bus bandwidth of nccl-tests: bytes / seconds, times the fraction of the bytes that a ring
  /// passes over each link of a rank: (n-1)/n for all_gather and reduce_scatter, twice that for
  /// all_reduce. If links are the limit, it does not depend on the number of ranks.
  [[nodiscard]] double bus_bandwidth() const;
};

struct JobOptions {
  WorldOptions world;               ///< on the process's CUDA device, whatever `device` says
  std::vector<std::int64_t> bytes;  ///< ascending
  int rounds = 11;
  int repeats = 20;  ///< consecutive calls in each round
};

/// *Collective.* Times each collective at each size over this process's job, with buffers
/// registered like those of a run; reports medians. `show` is called on rank 0.
void measure_job_collectives(const JobOptions& options,
                             const std::function<void(const JobCollective&)>& show);

}  // namespace tessera::bench
