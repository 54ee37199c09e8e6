#pragma once

#include <string>

namespace emulated_cuda {

/// Ends the process on an error that would cause wrong results or a hang on a GPU. Prints the
/// reason and what the calling thread was doing for the device.
[[noreturn]] void misuse(const std::string& text);

/// Declares what the calling thread does for a device during this object's lifetime. `what` is a
/// literal, `kernel` the function's address if it runs a kernel.
class Doing {
 public:
  explicit Doing(const char* what, const void* kernel = nullptr) noexcept;
  ~Doing();
  Doing(const Doing&) = delete;
  Doing& operator=(const Doing&) = delete;
};

/// "libtessera_cuda_emulated.so+0x1234", for addr2line.
[[nodiscard]] std::string place_of(const void* code);

/// "a kernel (tessera::kernels::cuda::add(...))"; empty if the thread does nothing for a device.
[[nodiscard]] std::string doing();

}  // namespace emulated_cuda
