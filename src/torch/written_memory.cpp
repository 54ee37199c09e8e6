#include "torch/written_memory.hpp"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>

#include "tessera/base/error.hpp"
#include "torch/intercept.hpp"

namespace tessera::torch {

namespace {

at::Tensor bytes_of(const c10::Storage& storage) {
  at::Tensor bytes = at::empty({0}, at::TensorOptions{}.dtype(at::kByte).device(storage.device()));
  const auto count = static_cast<std::int64_t>(storage.nbytes());
  bytes.set_(storage, 0, at::IntArrayRef{&count, 1});
  return bytes;
}

// Meta tensors have no values.
bool has_values(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() && !tensor.is_meta() &&
         tensor.storage().nbytes() > 0;
}

}  // namespace

void WrittenMemory::argument(const at::Tensor& tensor, bool writes) {
  if (!has_values(tensor)) { return; }
  const c10::StorageImpl* const memory = tensor.storage().unsafeGetStorageImpl();
  if (made_.contains(memory)) { return; }
  outside_.insert(memory);
  if (writes) { keep(tensor.storage()); }
}

void WrittenMemory::result(const at::Tensor& tensor) {
  if (!has_values(tensor)) { return; }
  const c10::StorageImpl* const memory = tensor.storage().unsafeGetStorageImpl();
  if (!outside_.contains(memory)) { made_.insert(memory); }
}

void WrittenMemory::forget_unshared() {
  made_.clear();
  outside_.clear();
  std::erase_if(kept_, [](const Kept& kept) { return kept.storage.use_count() == 1; });
}

void WrittenMemory::rewind_to(const WrittenMemory& earlier) {
  const NoInterception own;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  for (const Kept& kept : earlier.kept_) {
    outside_.insert(kept.storage.unsafeGetStorageImpl());
    keep(kept.storage);
  }
  for (const Kept& kept : earlier.kept_) { write(kept); }
}

void WrittenMemory::restore() const {
  const NoInterception own;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  std::exception_ptr error;
  for (const Kept& kept : kept_) {
    try {
      write(kept);
    } catch (...) {
      if (!error) { error = std::current_exception(); }
    }
  }
  if (error) { std::rethrow_exception(error); }
}

void WrittenMemory::write(const Kept& kept) {
  const at::Tensor now = bytes_of(kept.storage);
  if (now.numel() != kept.values.numel()) {
    throw ContractError{
        "memory that a recomputed function writes and did not make, such as a buffer, had " +
        std::to_string(kept.values.numel()) + " bytes and now has " + std::to_string(now.numel()) +
        ", so that its earlier values cannot be written back; do not resize it between the "
        "function's first run and the end of the backward pass"};
  }
  now.copy_(kept.values);
}

void WrittenMemory::keep(const c10::Storage& storage) {
  const bool is_kept = std::ranges::any_of(kept_, [&](const Kept& kept) {
    return kept.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
  });
  if (is_kept) { return; }
  const NoInterception own;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  kept_.push_back({storage, bytes_of(storage).clone()});
}

}  // namespace tessera::torch
