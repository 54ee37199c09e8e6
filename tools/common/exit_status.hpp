#pragma once

#include <functional>

namespace tessera::tools {

/// Exit status of the command. Scripts rely on these numbers.
enum class ExitStatus : int {
  done = 0,
  other = 1,
  usage = 2,   ///< bad usage, configuration or data
  memory = 3,  ///< out of budget or memory
  comm = 4,    ///< communication failure
  // 128 + N: training ended early by signal N; its weights are written
};

/// Thrown once everything has been reported: ends the command with `status`. It is not an error, so
/// it is not a std::exception.
struct Ended {
  int status = 0;
};

/// Runs `body`. Reports its exception on standard error, in a line or two, and turns it into a
/// status.
[[nodiscard]] ExitStatus guarded(const std::function<void()>& body);

}  // namespace tessera::tools
