#pragma once

#include <functional>

namespace tessera::tools {

/// How the command ends. Scripts rely on these numbers.
enum class ExitStatus : int {
  done = 0,
  other = 1,
  usage = 2,   ///< bad usage, configuration or data
  memory = 3,  ///< out of budget or memory
  comm = 4,    ///< communication failure
  // 128 + N: training ended early by signal N; its weights are written
};

/// Thrown where all has been said: ends the command with `status`. Not an error of its own, so no
/// std::exception.
struct Ended {
  int status = 0;
};

/// Runs `body`. What it throws is told on standard error, in a line or two, and becomes the status.
[[nodiscard]] ExitStatus guarded(const std::function<void()>& body);

}  // namespace tessera::tools
