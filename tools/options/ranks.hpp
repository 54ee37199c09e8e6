#pragma once

#include <exception>
#include <functional>
#include <optional>

#include "tessera/world/launch.hpp"
#include "tessera/world/world.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Ranks that are threads of one process, at most: each has two communication threads and a loader.
inline constexpr int kMostThreadRanks = 256;

/// ConfigError that says what is missing if this machine has not the device of `settings`.
void require_device(const Settings& settings);

/// `asked` with `comm`, `ranks` and `shard_group` as they will be: what the options, `job` and the
/// build make of them. ConfigError if they do not go together. Whether there is a CUDA device is
/// not looked at.
[[nodiscard]] Settings settle(Settings asked, const std::optional<LaunchedJob>& job, bool has_mpi);
/// The same for the job, the build and the devices that there are.
[[nodiscard]] Settings settle(const Settings& asked);

/// Runs `body` as the ranks of settled `settings`: all of them, as threads, or this process's in
/// its launcher's job. May be called again and again.
void run_on_ranks(const Settings& settings, const std::function<void(World&)>& body);

/// Whether this process has rank 0: it prints, and writes files. No other does.
[[nodiscard]] bool has_rank0();

/// *Collective.* Returns if no rank has an `error`. Otherwise the lowest of those that have throws
/// its own, and the others learn of it: what all of them find is reported once.
void fail_together(World& world, const std::exception_ptr& error);

/// Returns at once where rank 0 is, elsewhere after some seconds.
void await_turn();

/// What `body` returns. What it throws is thrown at once where rank 0 is, and elsewhere only if the
/// process is still there some seconds later: before the ranks can talk, each finds by itself what
/// is wrong with the command line, and the end of one ends them all.
template <class Body>
auto in_turn(const Body& body) {
  try {
    return body();
  } catch (...) {
    await_turn();
    throw;
  }
}

}  // namespace tessera::tools
