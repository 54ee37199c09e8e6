#include "emulated_cuda/misuse.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "emulated_cuda/symbols.hpp"

namespace emulated_cuda {
namespace {

constinit thread_local const char* what_is_done = nullptr;
constinit thread_local const void* kernel_that_runs = nullptr;

}  // namespace

std::string place_of(const void* code) {
  Dl_info info{};
  if (dladdr(code, &info) == 0) { return "?"; }
  std::array<char, 32> offset{};
  std::snprintf(
      offset.data(), offset.size(), "+0x%zx",
      reinterpret_cast<std::size_t>(code) - reinterpret_cast<std::size_t>(info.dli_fbase));
  return std::string{info.dli_fname} + offset.data();
}

void misuse(const std::string& text) {
  const std::string what = doing();
  std::fprintf(stderr, "emulated CUDA: %s%s%s\n", text.c_str(), what.empty() ? "" : ", in ",
               what.c_str());
  std::abort();
}

Doing::Doing(const char* what, const void* kernel) noexcept {
  what_is_done = what;
  kernel_that_runs = kernel;
}

Doing::~Doing() {
  what_is_done = nullptr;
  kernel_that_runs = nullptr;
}

std::string doing() {
  if (what_is_done == nullptr) { return {}; }
  if (kernel_that_runs == nullptr) { return what_is_done; }
  const std::string name = function_name(kernel_that_runs);
  return std::string{what_is_done} + " (" + (name.empty() ? place_of(kernel_that_runs) : name) +
         ")";
}

}  // namespace emulated_cuda
