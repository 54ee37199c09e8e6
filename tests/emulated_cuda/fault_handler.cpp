#include "emulated_cuda/fault_handler.hpp"

#include <signal.h>  // NOLINT(modernize-deprecated-headers): sigaction

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "emulated_cuda/memory.hpp"
#include "emulated_cuda/misuse.hpp"

namespace emulated_cuda {
namespace {

constexpr std::size_t kSignalStackBytes = std::size_t{64} << 10U;

struct sigaction before;

void handle(int signal, siginfo_t* info, void* /*context*/) {
  const std::string work = doing();
  const char* const what = work.empty() ? nullptr : work.c_str();
  if (device_of(info->si_addr)) {
    const std::string place = describe(info->si_addr);
    std::fprintf(stderr, "emulated CUDA: %s touches device memory that it must not: %s\n",
                 what == nullptr ? "the host" : what, place.c_str());
  } else if (what != nullptr) {
    std::fprintf(stderr, "emulated CUDA: %s touches address %p, or its stack is full\n", what,
                 info->si_addr);
  }
  sigaction(signal, &before,
            nullptr);  // the access is repeated, and meets whoever was there before
}

}  // namespace

void install_fault_handler() {
  [[maybe_unused]] static const bool installed = [] {
    struct sigaction action {};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    return sigaction(SIGSEGV, &action, &before) == 0;
  }();
}

#if defined(__SANITIZE_ADDRESS__)
void use_signal_stack() {}  // the address sanitizer gives every thread one
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
