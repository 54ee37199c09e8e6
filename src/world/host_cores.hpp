#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::world {

/// The cores that a rank may use.
struct HostCores {
  std::string machine;     ///< machine_id()
  std::vector<int> cores;  ///< numbered by its system, ascending
};

/// The cores that the system lets the calling thread run on.
[[nodiscard]] HostCores own_cores();

/// The text in which ranks exchange it.
[[nodiscard]] std::string encode(const HostCores& own);
/// Throws CommError if `text` is not such a text.
[[nodiscard]] HostCores decode_cores(std::string_view text);

/// The number of threads with which rank `rank` computes on the host: `asked`, or if that is 0 its
/// share of the cores. Each core is divided evenly among the ranks that may use it: ranks that a
/// launcher has bound to cores of their own get all of these, others share. At least 1, and at most
/// what a device can have.
[[nodiscard]] int host_threads(int asked, std::span<const HostCores> ranks, int rank);

}  // namespace tessera::world
