#pragma once

// The formulas of dp_vs_ddp_vs_zero, in bytes: fp32, AdamW. Layers, with padding, have a multiple
// of 64 elements per rank, so that every division below is exact.

#include <cstddef>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/engine/strategy.hpp"

struct Job {
  int ranks;
  tessera::Strategy strategy;
  int group;              // S of hybrid
  std::size_t model = 0;  // bytes of all parameters, 4 each, with padding
  std::size_t layer = 0;  // of one layer
};

struct Held {
  tessera::ModelStateBytes state;  // parameters, gradients, optimizer
  std::size_t slots = 0;           // memory for what is being gathered or reduced
  friend bool operator==(const Held&, const Held&) = default;
};

// Measurements of one rank.
struct Rank {
  Held held;
  std::vector<std::size_t> sent;  // in the last step, to each rank
  double loss = 0;
  std::size_t layer = 0;  // bytes of a layer's parameters, with padding
};

// The formulas in words: P and L are the bytes of all parameters and of one layer, S is the number
// of ranks in a group. A rank holds parameters, gradients, optimizer state and slots.
inline const char* formulas(tessera::Strategy strategy) {
  switch (strategy) {
    case tessera::Strategy::dp:
      return "P P 2P on rank 0, 2P of slots elsewhere; P from rank 0 to each (broadcast), P/N from "
             "each to each and\n         P/N more to rank 0 (reduce)";
    case tessera::Strategy::ddp:
      return "P P 2P; 2P/N to each (all-reduce)";
    case tessera::Strategy::zero1:
      return "P P 2P/N; 2P/N to each (reduce-scatter, all-gather)";
    case tessera::Strategy::zero2:
      return "P P/N 2P/N, slots 2L; 2P/N to each (the same)";
    case tessera::Strategy::zero3:
      return "P/N P/N 2P/N, slots 4L; 3P/N to each (all-gather twice, reduce-scatter)";
    case tessera::Strategy::hybrid:
      return "P/S P/S 2P/S, slots 4L; 3P/S to each of the group (the same), 2P/N to each copy "
             "(all-reduce)";
  }
  return "";
}

// What a rank holds. The optimizer keeps two moments.
inline Held held_by_formula(const Job& job, int rank) {
  const auto n = static_cast<std::size_t>(job.ranks);
  const auto s = static_cast<std::size_t>(job.group);
  const std::size_t all = job.model;
  switch (job.strategy) {
    case tessera::Strategy::dp:
      return rank == 0 ? Held{{all, all, 2 * all}, 0} : Held{{0, 0, 0}, 2 * all};
    case tessera::Strategy::ddp:
      return {{all, all, 2 * all}, 0};
    case tessera::Strategy::zero1:
      return {{all, all, 2 * all / n}, 0};
    case tessera::Strategy::zero2:
      return {{all, all / n, 2 * all / n}, 2 * job.layer};
    case tessera::Strategy::zero3:
      return {{all / n, all / n, 2 * all / n}, 4 * job.layer};
    case tessera::Strategy::hybrid:
      return {{all / s, all / s, 2 * all / s}, 4 * job.layer};
  }
  return {};
}

// What one rank sends to another in a step.
inline std::size_t sent_by_formula(const Job& job, int from, int to) {
  if (from == to) { return 0; }
  const std::size_t part = job.model / static_cast<std::size_t>(job.ranks);
  const std::size_t scalars =  // norms and loss, which rank 0 adds
      from == 0 || to == 0 ? sizeof(double) * static_cast<std::size_t>(job.ranks + 1) : 0;
  switch (job.strategy) {
    case tessera::Strategy::dp:  // a copy of the model from rank 0; a part to reduce; to 0 a
                                 // reduced part
      return scalars + (from == 0 ? job.model : 0) + part + (to == 0 ? part : 0);
    case tessera::Strategy::ddp:    // all-reduce: a part to reduce, a reduced part
    case tessera::Strategy::zero1:  // reduce-scatter: a part to reduce; all-gather: an updated part
    case tessera::Strategy::zero2:
      return scalars + 2 * part;
    case tessera::Strategy::zero3:  // all-gather in forward and in backward, reduce-scatter
      return scalars + 3 * part;
    case tessera::Strategy::hybrid: {  // that within a group; all-reduce across, between the same
                                       // places
      const std::size_t shard = job.model / static_cast<std::size_t>(job.group);
      if (from / job.group == to / job.group) { return scalars + 3 * shard; }
      return scalars + (from % job.group == to % job.group ? 2 * part : 0);
    }
  }
  return 0;
}
