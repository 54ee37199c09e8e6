#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <type_traits>
#include <utility>

#include "tessera/torch/random.hpp"
#include "tessera/world/mean.hpp"
#include "tessera/world/print.hpp"
#include "tessera/world/world.hpp"

namespace tessera::torch {

/// How `run` starts the ranks.
struct RunOptions {
  /// The number of ranks where no launcher has started the program: they are threads. If it is not
  /// given: the environment variable TESSERA_RANKS, else 1. A launcher's job has its own number.
  std::optional<int> ranks = {};
  /// The options of every rank's World.
  WorldOptions world = {};
  /// The seed of the ranks' generators, the same on all processes. If it is not given, ranks go on
  /// where libtorch's generator is when `run` is called: one rank draws what the program would draw
  /// without `run`, and other ranks' numbers depend on the generator's seed.
  std::optional<std::uint64_t> seed = {};
  /// Whether ranks draw different numbers once their modules are built.
  RandomNumbers random = RandomNumbers::per_rank;
};

/// Runs `body` on every rank and returns the exit status of the program; `run` below is its use.
/// `body` calls `built` once it has built the rank's modules: numbers drawn before are the same on
/// all ranks, and those after as RunOptions::random says.
[[nodiscard]] int run_program(
    const std::function<void(World&, const std::function<void()>& built)>& body,
    const RunOptions& options);

/// Runs a program of libtorch on every rank: `build()` returns the rank's module, or any object
/// that holds its modules, with the same random numbers on every rank; `train(world, modules)`
/// trains it. Returns the exit status for `main`: 0, or 1 after an error.
///
///     int main() {
///       torch::manual_seed(1);
///       return tessera::torch::run([] { return Net(); }, [](tessera::World& world, Net& net) {
///         auto model = tessera::torch::shard(net, world);
///         ...
///       });
///     }
///
/// Ranks:   where mpirun, srun or torchrun has started the program, each process is one rank of its
///          job (launched_job; torchrun needs CUDA devices). Otherwise the ranks are threads of
///          this process, as many as RunOptions::ranks says.
/// Numbers: everything that operators draw on the rank's thread comes from the rank's generator
///          (RandomNumbers).
/// Errors:  an exception ends the job on all ranks. Its text is printed to standard error once, as
///          "error: ...", by the process that failed.
/// Threads: `build` and `train` are called by several threads at once if the ranks are threads.
template <class Build, class Train>
  requires std::is_invocable_v<Build&> &&
           std::is_invocable_v<Train&, World&, std::invoke_result_t<Build&>&>
[[nodiscard]] int run(Build build, Train train, const RunOptions& options = {}) {
  return run_program(
      [&](World& world, const std::function<void()>& built) {
        auto modules = build();
        built();
        train(world, modules);
      },
      options);
}

}  // namespace tessera::torch
