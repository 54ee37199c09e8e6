#pragma once

#include <functional>
#include <string_view>

namespace tessera::tools {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP is noted and ends nothing. What comes
/// within a second of it is taken for the same request: terminals and launchers send one to a
/// process more than once. A later one ends the process at once, as a signal does that nobody
/// handles. Signals that the process was started to ignore (nohup) stay ignored.
///
/// Threads: made and destroyed by the main thread; several may live, one within the other.
class NotedSignals {
 public:
  NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  /// The outermost object restores the handlers and forgets noted signals.
  ~NotedSignals();

  /// The signal that has come; 0 if none has, or if none is noted now. Any thread.
  [[nodiscard]] static int noted() noexcept;
};

/// Runs a short `body` to its end. A signal during it takes effect afterwards, so no temporary file
/// is left behind. Where signals are noted already, it only runs `body`.
void undisturbed(const std::function<void()>& body);

/// "SIGINT", "SIGTERM", "SIGHUP".
[[nodiscard]] std::string_view signal_name(int signal) noexcept;

}  // namespace tessera::tools
