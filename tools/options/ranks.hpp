#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string_view>

#include "tessera/world/launch.hpp"
#include "tessera/world/world.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// The most ranks that are threads of one process: each has two communication threads and a loader.
inline constexpr int kMostThreadRanks = 256;

/// ConfigError that says what is missing if this machine lacks the device of `settings`.
void require_device(const Settings& settings);

/// `asked` with `comm`, `ranks` and `shard_group` as they follow from the options, `job` and the
/// build. ConfigError if they contradict each other. Does not check whether there is a CUDA device.
[[nodiscard]] Settings settle(Settings asked, const std::optional<LaunchedJob>& job, bool has_mpi);
/// The same for this process's job and build, including its devices.
[[nodiscard]] Settings settle(const Settings& asked);

/// Runs `body` on the ranks of settled `settings`: on all of them, as threads, or on this process's
/// rank of its launcher's job. May be called repeatedly.
void run_on_ranks(const Settings& settings, const std::function<void(World&)>& body);

/// Whether this process has rank 0: only that process prints and writes files. With --comm local
/// every process does.
[[nodiscard]] bool has_rank0(const Settings& settings);

/// Whether this process runs `command`, which needs only one process: in a launcher's job the
/// first. The others say on standard error that they do nothing, and why.
[[nodiscard]] bool runs_alone(std::string_view command);

/// *Collective.* Returns if no rank has an `error`. Otherwise the lowest rank with an error throws
/// it, and the others throw an echo: an error that all of them find is reported once.
void fail_together(World& world, const std::exception_ptr& error);

/// Returns at once in the process with rank 0, after some seconds in the others.
void await_turn();

/// Returns the result of `body`. Rethrows its exception at once in the process with rank 0, and in
/// the others only if they still run some seconds later: until the ranks can communicate, each
/// process finds errors of the command line itself, and the end of one process ends all.
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
