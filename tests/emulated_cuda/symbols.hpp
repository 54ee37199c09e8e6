#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace emulated_cuda {

/// An array of the calling thread.
struct SharedArray {
  std::byte* data;
  std::size_t bytes;
};

/// The `__shared__` arrays that a block of `kernel` may use, as its file's symbol table has them:
/// the kernel's own, and small ones of the functions that it may call. Empty if the file was
/// stripped.
class SharedArrays {
 public:
  explicit SharedArrays(const void* kernel);

  /// Fills them with 0xFF: the initial contents of shared memory are undefined.
  void poison() const;

 private:
  std::vector<SharedArray> arrays_;
};

/// What `kernel` itself declares of them, in bytes.
[[nodiscard]] std::size_t declared_shared_bytes(const void* kernel);

/// The name of the function that begins at `code`, if the symbol table has it.
[[nodiscard]] std::string function_name(const void* code);

}  // namespace emulated_cuda
