#pragma once

#include <cstdint>

namespace tessera::torch {

/// The random numbers that operators draw on a rank where the program gives them no generator:
/// dropout, noise, shuffles, initial values. Each rank draws from a generator of its own, so ranks
/// that are threads do not disturb each other.
///
/// Scope:   in a program of `tessera::torch::run`, everything that runs on the rank's thread and in
///          autograd. Otherwise the passes of a ShardedModule: its `forward`, `backward` and
///          `evaluate`; the rest draws from libtorch's default generator.
/// Seeds:   rank 0 draws what libtorch draws after torch::manual_seed(seed). Another rank's numbers
///          depend on the seed and the rank only. No strategy changes them.
/// torch::manual_seed(s) within the scope seeds the calling rank's generator with s: as in a
///          process of its own, whatever the rank. Elsewhere it seeds libtorch's, as always.
/// Threads: those that the program starts itself are no ranks: they draw from libtorch's.
enum class RandomNumbers : std::uint8_t {
  per_rank,  ///< Ranks draw different numbers.
  same,      ///< All ranks draw the numbers of rank 0.
};

}  // namespace tessera::torch
