#include "emulated_cuda/fault_handler.hpp"

#include <signal.h>    // sigaction
#include <ucontext.h>  // for the fault's address

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include "emulated_cuda/dynamic_shared.hpp"
#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/misuse.hpp"

namespace emulated_cuda {
namespace {

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10U;

struct sigaction before_segv;
struct sigaction before_ill;

std::string what_went_wrong(int signal, const siginfo_t& info, bool for_device) {
  if (signal == SIGILL) {
    return for_device ? "accesses a misaligned address, goes beyond an array, or overflows" : "";
  }
  if (device_of(info.si_addr)) {
    return "touches device memory that it must not: " + describe(info.si_addr);
  }
  if (is_beyond_dynamic_shared(info.si_addr)) {
    return "goes beyond the shared memory that its launch gave each block";
  }
  return for_device ? "touches an address that is nobody's, or its stack is full" : "";
}

void handle(int signal, siginfo_t* info, void* context) {
  const std::string who = doing();
  const std::string what = what_went_wrong(signal, *info, !who.empty());
  if (!what.empty()) {
    const auto& registers = static_cast<const ucontext_t*>(context)->uc_mcontext.gregs;
    const std::string where = place_of(reinterpret_cast<const void*>(registers[REG_RIP]));
    std::fprintf(stderr, "emulated CUDA: %s %s, at %s\n", who.empty() ? "the host" : who.c_str(),
                 what.c_str(), where.c_str());
  }
  // The access is repeated under the previous handler.
  sigaction(signal, signal == SIGILL ? &before_ill : &before_segv, nullptr);
}

}  // namespace

void install_fault_handler() {
  [[maybe_unused]] static const bool installed = [] {
    struct sigaction action{};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGSEGV, &action, &before_segv) == 0 &&
           sigaction(SIGILL, &action, &before_ill) == 0;
  }();
}

#if defined(__SANITIZE_ADDRESS__)
void use_signal_stack() {}  // the address sanitizer gives every thread a signal stack
#else
void use_signal_stack() {
  thread_local std::unique_ptr<std::byte[]> memory;
  if (memory) { return; }
  memory = std::make_unique<std::byte[]>(kSignalStackBytes);
  stack_t stack{};
  stack.ss_sp = memory.get();
  stack.ss_size = kSignalStackBytes;
  (void)sigaltstack(&stack, nullptr);
}
#endif

}  // namespace emulated_cuda
