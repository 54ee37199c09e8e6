#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace tessera::cuda {

/// What the driver's management library (NVML) reports of a device, by its UUID ("GPU-..."). The
/// library is part of the driver and opened at the first query; if it is missing, or does not
/// report a value, the result is empty. Threads: any.
namespace nvml {

/// Bytes used by all processes, without the driver's own.
[[nodiscard]] std::optional<std::size_t> used_bytes(const std::string& uuid);
/// Bytes used by this process. A container may hide them.
[[nodiscard]] std::optional<std::size_t> used_by_process_bytes(const std::string& uuid);
/// "580.95.05".
[[nodiscard]] std::optional<std::string> driver_version();

struct Clocks {
  unsigned sm_mhz = 0;
  unsigned memory_mhz = 0;
};
/// The current clocks.
[[nodiscard]] std::optional<Clocks> clocks(const std::string& uuid);

}  // namespace nvml
}  // namespace tessera::cuda
