#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "tessera/world/launch.hpp"

namespace tessera::world {

enum class LauncherKind : std::uint8_t { mpirun, srun, torchrun };

struct FoundJob {
  LauncherKind kind;
  LaunchedJob job;
};

using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

/// Empty if no launcher's variables are set. Throws ConfigError if they are not consistent numbers.
[[nodiscard]] std::optional<FoundJob> find_job(const ReadVariable& read);

/// The job that run() joins: see launched_job().
[[nodiscard]] std::optional<LaunchedJob> joined_job(const std::optional<FoundJob>& found,
                                                    DeviceKind device = DeviceKind::cpu);

}  // namespace tessera::world
