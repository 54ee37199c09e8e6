#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// The cores that a rank may use.
struct HostCores {
  std::string machine;     ///< machine_id()
  std::vector<int> cores;  ///< as its system numbers them, ascending
};

/// Of the calling thread: those that the system lets it run on.
[[nodiscard]] HostCores own_cores();

/// As ranks tell each other.
[[nodiscard]] std::string encode(const HostCores& own);
/// CommError for what is no such text.
[[nodiscard]] HostCores decode_cores(std::string_view text);

/// With how many threads rank `rank` computes on the host: `asked`, or if that is 0 its part of the
/// cores. Each core is shared out evenly among the ranks that may use it: ranks that a launcher has
/// bound to cores of their own have all of these, others divide them. At least 1, and no more than
/// a device can have.
[[nodiscard]] int host_threads(int asked, std::span<const HostCores> ranks, int rank);

}  // namespace tessera
