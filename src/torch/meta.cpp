#include "tessera/torch/meta.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>

#include "torch/meta_tensors.hpp"

namespace tessera::torch {

namespace {

// As in intercept.cpp: a key of libtorch's that a thread can switch on and that nothing else in
// libtorch has a meaning for. It lies right below that one.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local int guards = 0;

bool is_tensor_on(const c10::IValue& value, bool& on_meta) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    on_meta = on_meta || (tensor.defined() && tensor.is_meta());
    return tensor.defined();
  }
  if (!value.isList()) { return false; }
  bool found = false;
  for (const c10::IValue& element : value.toListRef()) {
    if (element.isTensor()) { found = is_tensor_on(element, on_meta) || found; }
  }
  return found;
}

// The arguments of an operator on the stack.
struct Arguments {
  const c10::FunctionSchema& schema;
  ::torch::jit::Stack& stack;

  [[nodiscard]] c10::IValue& at(std::size_t i) const {
    return stack[stack.size() - schema.arguments().size() + i];
  }
  [[nodiscard]] c10::IValue* named(const char* name) const {
    for (std::size_t i = 0; i < schema.arguments().size(); ++i) {
      if (schema.arguments()[i].name() == name) { return &at(i); }
    }
    return nullptr;
  }
};

// A factory that names no device, or another one than the CPU, makes a meta tensor. One that names
// the CPU has values that somebody reads at once, such as those that torch::tensor copies in.
void go_to_meta(const Arguments& arguments, bool has_tensors, bool on_meta) {
  c10::IValue* const device = arguments.named("device");
  if (device == nullptr || !(device->isNone() || device->isDevice())) { return; }
  const bool names_cpu = device->isDevice() && device->toDevice().is_cpu();
  const bool makes = has_tensors ? on_meta && device->isDevice() : !names_cpu;
  if (!makes) { return; }
  *device = c10::IValue{c10::Device{c10::kMeta}};
  if (c10::IValue* const pinned = arguments.named("pin_memory")) { *pinned = c10::IValue{}; }
}

// Fills a tensor without memory: returns what it was to fill.
bool fill_nothing(const c10::OperatorHandle& op, const Arguments& arguments) {
  const auto& schema = op.schema();
  if (op.hasComputedKernelForDispatchKey(c10::DispatchKey::Meta)) { return false; }
  if (schema.arguments().empty() || schema.returns().size() != 1) { return false; }
  const c10::AliasInfo* const alias = schema.arguments()[0].alias_info();
  const c10::IValue& self = arguments.at(0);
  if (alias == nullptr || !alias->isWrite() || !self.isTensor()) { return false; }
  const at::Tensor filled = self.toTensor();
  if (!filled.defined() || !filled.is_meta()) { return false; }
  ::torch::jit::drop(arguments.stack, schema.arguments().size());
  ::torch::jit::push(arguments.stack, filled);
  return true;
}

void run_operator(const c10::OperatorHandle& op, ::torch::jit::Stack* stack) {
  const Arguments arguments{op.schema(), *stack};
  bool has_tensors = false;
  bool on_meta = false;
  for (std::size_t i = 0; i < op.schema().arguments().size(); ++i) {
    has_tensors = is_tensor_on(arguments.at(i), on_meta) || has_tensors;
  }
  go_to_meta(arguments, has_tensors, on_meta);
  if (on_meta && fill_nothing(op, arguments)) { return; }
  const c10::impl::ExcludeDispatchKeyGuard within{kKey};
  op.callBoxed(stack);
}

}  // namespace

MetaGuard::MetaGuard() {
  if (guards++ == 0) { c10::impl::tls_set_dispatch_key_included(kKey, true); }
}

MetaGuard::~MetaGuard() {
  if (--guards == 0) { c10::impl::tls_set_dispatch_key_included(kKey, false); }
}

bool makes_meta_tensors() noexcept {
  return guards > 0;
}

void set_memory(const at::Tensor& tensor, const at::Tensor& memory) {
  tensor.unsafeGetTensorImpl()->shallow_copy_from(memory.getIntrusivePtr());
}

at::Tensor meta_like(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           at::TensorOptions{}.dtype(tensor.scalar_type()).device(at::kMeta));
}

}  // namespace tessera::torch

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericWrapper, library) {
  library.fallback(::torch::CppFunction::makeFromBoxedFunction<&tessera::torch::run_operator>());
}
