#include "tools/common/noted_signals.hpp"

#include <array>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <ctime>

namespace tessera::tools {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP};
constexpr std::int64_t kEchoNs = 1'000'000'000;

// The state that a signal handler can access.
struct Noted {
  std::atomic<int> signal{0};
  std::atomic<std::int64_t> at_ns{0};
  int depth = 0;
  std::array<struct sigaction, kSignals.size()> before{};
};
static_assert(std::atomic<int>::is_always_lock_free);
static_assert(std::atomic<std::int64_t>::is_always_lock_free);

Noted& state() noexcept {
  static constinit Noted noted;
  return noted;
}

std::int64_t now_ns() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

extern "C" void note_signal(int signal) {
  int none = 0;
  if (state().signal.compare_exchange_strong(none, signal)) {
    state().at_ns = now_ns();
    return;
  }
  const std::int64_t at_ns = state().at_ns;
  // Another thread's handler may be between the two lines above and not have stored the time yet.
  if (at_ns == 0 || now_ns() - at_ns < kEchoNs) { return; }
  std::signal(signal, SIG_DFL);
  std::raise(signal);  // takes effect when this returns
}

}  // namespace

NotedSignals::NotedSignals() {
  Noted& noted = state();
  if (noted.depth++ > 0) { return; }
  noted.signal = 0;
  noted.at_ns = 0;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action{};
    ::sigaction(kSignals[i], nullptr, &noted.before[i]);
    if (noted.before[i].sa_handler == SIG_IGN) { continue; }
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    ::sigaction(kSignals[i], &action, nullptr);
  }
}

NotedSignals::~NotedSignals() {
  Noted& noted = state();
  if (--noted.depth > 0) { return; }
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &noted.before[i], nullptr);
  }
  noted.signal = 0;
}

int NotedSignals::noted() noexcept {
  return state().signal;
}

void undisturbed(const std::function<void()>& body) {
  int signal = 0;
  {
    const NotedSignals noted;
    body();
    if (state().depth == 1) { signal = NotedSignals::noted(); }
  }
  if (signal != 0) { std::raise(signal); }
}

std::string_view signal_name(int signal) noexcept {
  if (signal == SIGHUP) { return "SIGHUP"; }
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

}  // namespace tessera::tools
