#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Storage.h>

#include <unordered_set>
#include <vector>

namespace tessera::torch {

/// The memory that a part of the program writes although the part did not make it, such as a
/// module's buffers, with the values from before the first write. NotedWrites (intercept.hpp) shows
/// it the operators of that part.
class WrittenMemory {
 public:
  /// An operator is about to read `tensor`, or to write it.
  void argument(const at::Tensor& tensor, bool writes);
  /// The operator has returned `tensor`.
  void result(const at::Tensor& tensor);
  /// The part has ended: memory that nothing else holds any more is forgotten.
  void forget_unshared();
  /// Writes the values of `earlier` to its memory, and keeps those that the memory has now. Throws
  /// ContractError if the size of the memory has changed. After an error `restore` undoes what has
  /// been written.
  void rewind_to(const WrittenMemory& earlier);
  /// Writes all kept values back that can be, and then throws the first error: as rewind_to.
  void restore() const;

 private:
  struct Kept {
    c10::Storage storage;
    at::Tensor values;  // its bytes
  };
  void keep(const c10::Storage& storage);
  static void write(const Kept& kept);

  std::unordered_set<const c10::StorageImpl*> made_;     // by the part
  std::unordered_set<const c10::StorageImpl*> outside_;  // of earlier
  std::vector<Kept> kept_;
};

}  // namespace tessera::torch
