#pragma once

#include <string>

namespace emulated_cuda {

/// What a GPU would answer with wrong results or a hang ends the process here, with the reason on
/// stderr and what the calling thread was doing for the device.
[[noreturn]] void misuse(const std::string& text);

/// While it lives, `what` (a literal) is what the calling thread does for a device; `kernel`: the
/// function's address, if it is one.
class Doing {
 public:
  explicit Doing(const char* what, const void* kernel = nullptr) noexcept;
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;
};

/// "libtessera_cuda_emulated.so+0x1234": for addr2line, which knows the function and its line.
[[nodiscard]] std::string place_of(const void* code);

/// "a kernel (tessera::kernels::cuda::add(...))"; empty: nothing for a device.
[[nodiscard]] std::string doing();

}  // namespace emulated_cuda
