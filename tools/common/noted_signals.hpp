#pragma once

#include <functional>
#include <string_view>

namespace tessera::tools {

/// While one lives, the first SIGINT, SIGTERM or SIGHUP is noted and does not end the process.
/// Signals within a second of it count as the same request: terminals and launchers send one to a
/// process more than once. A later signal ends the process at once, like a signal without a
/// handler. Signals that the process was started to ignore (nohup) stay ignored.
///
/// Threads: created and destroyed by the main thread; several may be nested.
class NotedSignals {
 public:
  NotedSignals();
  NotedSignals(const NotedSignals&) = delete;
  NotedSignals& operator=(const NotedSignals&) = delete;
  /// The outermost object restores the handlers and forgets noted signals.
  ~NotedSignals();

  /// The noted signal; 0 if there is none, or if no NotedSignals lives. Any thread.
  [[nodiscard]] static int noted() noexcept;
};

/// Runs a short `body` to its end. A signal during it takes effect afterwards, so no temporary file
/// is left behind. If signals are already being noted, this only runs `body`.
void undisturbed(const std::function<void()>& body);

/// "SIGINT", "SIGTERM", "SIGHUP".
[[nodiscard]] std::string_view signal_name(int signal) noexcept;

}  // namespace tessera::tools
