#include "world/counting_guard.hpp"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction is POSIX's
#include <unistd.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string_view>

namespace tessera::world {
namespace {

constexpr std::array kSignals{SIGSEGV, SIGBUS};

// Read by a signal handler: nothing here may be initialised at first use.
constinit thread_local int counting_on_this_thread = 0;
constinit std::array<struct sigaction, kSignals.size()> before{};
constinit int guards = 0;
constinit std::mutex guards_mutex;

constexpr std::string_view kWhatToDo =
    "tessera: this rank only counts (a plan), so the memory that the program has just accessed "
    "does not exist; put loops that read or write tensors in World::compute, which a plan skips "
    "(in C: skip them where tessera_world_computes writes 0)\n";

/// Addresses of counted memory are not canonical, so the kernel does not report the address.
bool is_no_address(const siginfo_t& info) {
  return info.si_code == SI_KERNEL || reinterpret_cast<std::uintptr_t>(info.si_addr) >> 62U == 1;
}

// Only calls allowed in a handler. When it returns, the access is repeated, and the previous
// handler, or the kernel, ends the process there.
extern "C" void counted_memory_is_touched(int signal, siginfo_t* info, void* /*context*/) {
  if (counting_on_this_thread > 0 && is_no_address(*info)) {
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, kWhatToDo.data(), kWhatToDo.size());
  }
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    if (kSignals[i] == signal) { ::sigaction(signal, &before[i], nullptr); }
  }
  if (info->si_code <= 0) { ::raise(signal); }  // it was sent: no access repeats it
}

}  // namespace

CountingGuard::CountingGuard() {
  const std::lock_guard lock{guards_mutex};
  ++counting_on_this_thread;
  if (guards++ > 0) { return; }
  struct sigaction action{};
  action.sa_sigaction = &counted_memory_is_touched;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &action, &before[i]);
  }
}

CountingGuard::~CountingGuard() {
  const std::lock_guard lock{guards_mutex};
  --counting_on_this_thread;
  if (--guards > 0) { return; }
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &before[i], nullptr);
  }
}

}  // namespace tessera::world
