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

/// The `__shared__` arrays that a block of `kernel` may use, from its file's symbol table: the
/// kernel's own, and small ones of functions that it may call. Empty if the file is stripped.
class SharedArrays {
 public:
  explicit SharedArrays(const void* kernel);

  /// Fills them with 0xFF: the initial contents of shared memory are undefined.
  void poison() const;

 private:
  std::vector<SharedArray> arrays_;
};

/// Bytes of shared memory that `kernel` itself declares.
[[nodiscard]] std::size_t declared_shared_bytes(const void* kernel);
/// These, and those of all functions that it may call: at least what a GPU would count.
[[nodiscard]] std::size_t possible_shared_bytes(const void* kernel);

/// "kernel(int*)::array + 4", for an address in a shared array of the calling thread; empty if the
/// symbol table has none.
[[nodiscard]] std::string shared_array_at(const void* data);

/// The name of the function that begins at `code`, if the symbol table has it.
[[nodiscard]] std::string function_name(const void* code);

}  // namespace emulated_cuda
