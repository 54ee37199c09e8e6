#include "torch/parameter_home.hpp"

#include <ATen/ops/empty.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/Storage.h>
#include <torch/csrc/autograd/variable.h>

#include <cstring>
#include <utility>

#include "tessera/base/error.hpp"
#include "torch/intercept.hpp"
#include "torch/meta_tensors.hpp"

namespace tessera::torch {

namespace {

// Marks storages that are places; their memory belongs to the model.
void belongs_to_a_place(void* /*place*/) {}

// Marks storages of parameters whose sharded module has ended.
void was_given_up(void* /*nothing*/) {}

// The storage's pointer, also while it forbids access.
template <class Storage>
const c10::DataPtr& data_of(Storage& storage) {
  if constexpr (requires { storage._mutable_data_ptr_no_checks(); }) {  // from libtorch 2.1 on
    return storage._mutable_data_ptr_no_checks();
  } else {
    return storage.data_ptr();
  }
}

// While a storage has no memory, what reads it without an operator (data_ptr, torch::save) gets
// this text. Older versions of libtorch, without such a text, refuse a null address in words of
// their own.
template <class Storage>
void forbid_access(Storage& storage, const std::string& text) {
  if constexpr (requires { storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text); }) {
    storage.release_data_and_set_meta_custom_data_ptr_error_msg_(text);
  }
}
template <class Storage>
void allow_access(Storage& storage) {
  if constexpr (requires { storage.clear_data_ptr_access_error_msg_(); }) {
    storage.clear_data_ptr_access_error_msg_();
  }
}

}  // namespace

at::ScalarType scalar_type(DType dtype) noexcept {
  switch (dtype) {
    case DType::fp32:
      return at::kFloat;
    case DType::bf16:
      return at::kBFloat16;
    case DType::fp16:
      return at::kHalf;
    case DType::fp64:
      return at::kDouble;
  }
  return at::kFloat;
}

Place::~Place() {
  if (!storage_) { return; }
  c10::StorageImpl& storage = *storage_.unsafeGetStorageImpl();
  allow_access(storage);
  storage.set_data_ptr_noswap(c10::DataPtr{nullptr, device_});
  if (storage_.use_count() > 1 && device_.is_cpu()) {  // a view that the user has kept reads NaN
    c10::DataPtr memory = c10::GetCPUAllocator()->allocate(storage.nbytes());
    std::memset(memory.get(), 0xFF, storage.nbytes());
    storage.set_data_ptr_noswap(std::move(memory));
  }
}

at::Tensor Place::make(at::IntArrayRef sizes, at::ScalarType dtype, at::Device device) {
  device_ = device;
  std::int64_t elems = 1;
  for (const std::int64_t extent : sizes) { elems *= extent; }
  storage_ = c10::Storage{c10::Storage::use_byte_size_t(),
                          static_cast<std::size_t>(elems) * c10::elementSize(dtype),
                          c10::DataPtr{nullptr, this, &belongs_to_a_place, device}, nullptr, false};
  closed_text_ = std::string{kind_ == PlaceKind::parameter ? "parameter" : "the gradient of"} +
                 " \"" + home_->name() +
                 "\" of a sharded module has no memory but while operators use it: use a copy "
                 "(ShardedModule::state_dict; net->clone() on all ranks for torch::save)";
  point(nullptr);
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  const at::Tensor like = at::empty({0}, at::TensorOptions{}.dtype(dtype).device(device));
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage{storage_}, like.key_set().add(kShownKey), like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  return tensor;
}

void Place::point(void* data) noexcept {
  if (!storage_) { return; }
  c10::StorageImpl& storage = *storage_.unsafeGetStorageImpl();
  storage.set_data_ptr_noswap(c10::DataPtr{data, this, &belongs_to_a_place, device_});
  if (storage.nbytes() == 0) { return; }
  data != nullptr ? allow_access(storage) : forbid_access(storage, closed_text_);
}

bool Place::is_open() const noexcept {
  // A tensor without elements has no address.
  return storage_ &&
         (storage_.nbytes() == 0 || data_of(*storage_.unsafeGetStorageImpl()).get() != nullptr);
}

Place* Place::of(const at::Tensor& tensor) noexcept {
  if (!tensor.defined() || !tensor.has_storage()) { return nullptr; }
  const c10::DataPtr& data = data_of(*tensor.storage().unsafeGetStorageImpl());
  return data.get_deleter() == &belongs_to_a_place ? static_cast<Place*>(data.get_context())
                                                   : nullptr;
}

ParameterHome::ParameterHome(at::Tensor tensor, std::string name, std::string in_unit,
                             std::size_t unit, Passes& passes)
    : tensor_{std::move(tensor)},
      name_{std::move(name)},
      in_unit_{std::move(in_unit)},
      unit_{unit},
      passes_{&passes},
      trainable_{tensor_.requires_grad()} {}

ParameterHome::~ParameterHome() {
  if (Place::of(tensor_) != &parameter_) { return; }  // `shard` failed: the values are its own
  drop_gradient();
  tensor_.unsafeGetTensorImpl()->bump_version();  // autograd rejects graphs that have saved it
  try {
    const NoInterception own;
    const at::Tensor nothing = at::empty(
        tensor_.sizes(), at::TensorOptions{}.dtype(tensor_.scalar_type()).device(at::kMeta));
    nothing.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(
        c10::DataPtr{nullptr, nullptr, &was_given_up, at::kMeta});
    set_memory(tensor_, nothing);
  } catch (...) {  // NOLINT(bugprone-empty-catch): the tensor then has no address
  }
}

bool has_been_given_up(const at::Tensor& tensor) noexcept {
  return tensor.defined() && tensor.has_storage() &&
         data_of(*tensor.storage().unsafeGetStorageImpl()).get_deleter() == &was_given_up;
}

void ParameterHome::adopt(DType dtype, at::Device device) {
  const NoInterception own;  // another sharded module of this thread has its guard on
  const at::Tensor memory = parameter_.make(tensor_.sizes(), scalar_type(dtype), device);
  if (tensor_.is_meta()) {
    set_memory(tensor_, memory);
  } else {
    tensor_.set_data(memory);
  }
  tensor_.mutable_grad() = at::Tensor{};
}

void ParameterHome::open(const void* data) noexcept {
  parameter_.point(const_cast<void*>(data));  // libtorch has no read-only tensors
}

void ParameterHome::close() noexcept {
  parameter_.point(nullptr);
}

void ParameterHome::open_gradient(void* data, DType dtype) {
  if (!gradient_tensor_.defined()) {
    gradient_tensor_ = gradient_.make(tensor_.sizes(), scalar_type(dtype), tensor_.device());
  }
  gradient_.point(data);
  tensor_.mutable_grad() = gradient_tensor_;
}

void ParameterHome::close_gradient() noexcept {
  if (tensor_.numel() == 0 || !gradient_.is_open()) { return; }
  gradient_.point(nullptr);
  waits_ = true;
  zeroed_ = false;
}

void ParameterHome::drop_gradient() noexcept {
  if (gradient_tensor_.defined()) { gradient_.point(nullptr); }
  tensor_.mutable_grad() = at::Tensor{};
  waits_ = false;
}

bool ParameterHome::gradient_is_dropped() const {
  return waits_ && (zeroed_ || !tensor_.grad().defined());
}

// zero_grad may leave a detached alias.
bool ParameterHome::gradient_is_foreign() const {
  return waits_ && tensor_.grad().defined() && Place::of(tensor_.grad()) != &gradient_;
}

at::Tensor ParameterHome::magnitude() {
  if (!magnitude_tensor_.defined()) {
    magnitude_tensor_ =
        magnitude_.make(tensor_.sizes(), gradient_tensor_.scalar_type(), tensor_.device());
  }
  return magnitude_tensor_;
}

void ParameterHome::require_own() const {
  if (Place::of(tensor_) != &parameter_) {
    throw ContractError{
        "parameter \"" + name_ +
        "\" was given other memory (module->to(...), set_data), so the sharded module "
        "would train values that nothing reads; convert a module before it is sharded"};
  }
  if (tensor_.requires_grad() && !trainable_) {
    throw ContractError{"parameter \"" + name_ +
                        "\" was frozen when the module was sharded and is now set to be trained, "
                        "for which there is no memory; save, and shard the module anew, or shard "
                        "it trainable and freeze it afterwards"};
  }
}

bool ParameterHome::has_own_gradient() const {
  return tensor_.grad().defined() && gradient_tensor_.defined() &&
         tensor_.grad().is_same(gradient_tensor_);
}

}  // namespace tessera::torch
