#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tessera::cuda {

/// What the driver's management library tells of a device, by its UUID ("GPU-..."). The library is
/// part of the driver and opened at the first question; where it is missing, or does not tell,
/// there is no answer. Threads: any.
namespace nvml {

/// Of all processes, without what the driver keeps for itself.
[[nodiscard]] std::optional<std::size_t> used_bytes(const std::string& uuid);
/// Of this process. A container may keep it from being told.
[[nodiscard]] std::optional<std::size_t> used_by_process_bytes(const std::string& uuid);
/// "580.95.05".
[[nodiscard]] std::optional<std::string> driver_version();

struct Clocks {
  unsigned sm_mhz = 0;
  unsigned memory_mhz = 0;
};
/// As they are at the moment.
[[nodiscard]] std::optional<Clocks> clocks(const std::string& uuid);

}  // namespace nvml
}  // namespace tessera::cuda
