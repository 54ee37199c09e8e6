#include "tessera/torch/meta.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "torch/meta_tensors.hpp"

namespace tessera::torch {

namespace {

// As in intercept.cpp: a key of libtorch that a thread can switch on and that libtorch uses for
// nothing else, right below that one.
constexpr c10::DispatchKey kMetaKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

thread_local int meta_guards = 0;

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

// A factory without a device, or with another device than the CPU, makes a meta tensor. One that
// names the CPU has values that are read at once, such as those that torch::tensor copies. Returns
// whether it goes to meta.
bool go_to_meta(const Arguments& arguments, bool has_tensors, bool on_meta) {
  c10::IValue* const device = arguments.named("device");
  if (device == nullptr || !(device->isNone() || device->isDevice())) { return false; }
  const bool names_cpu = device->isDevice() && device->toDevice().is_cpu();
  const bool makes = has_tensors ? on_meta && device->isDevice() : !names_cpu;
  if (!makes) { return false; }
  *device = c10::IValue{c10::Device{c10::kMeta}};
  if (c10::IValue* const pinned = arguments.named("pin_memory")) { *pinned = c10::IValue{}; }
  return true;
}

// libtorch 2 has a fallback for meta, which throws.
bool tells_shapes(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  constexpr std::array kKeys{DispatchKey::Meta, DispatchKey::CompositeImplicitAutograd,
                             DispatchKey::CompositeExplicitAutograd,
                             DispatchKey::CompositeExplicitAutogradNonFunctional};
  return std::any_of(kKeys.begin(), kKeys.end(),
                     [&](DispatchKey key) { return op.hasKernelForDispatchKey(key); });
}

// For the few operators that cannot compute only shapes: runs one on zeros, with its own generator,
// and keeps the shapes of its results.
class OnZeros {
 public:
  static void run(const c10::OperatorHandle& op, const Arguments& arguments) {
    OnZeros made;
    for (std::size_t i = 0; i < arguments.schema.arguments().size(); ++i) {
      c10::IValue& argument = arguments.at(i);
      const std::string& name = arguments.schema.arguments()[i].name();
      if (name == "device" && argument.isDevice()) {
        argument = c10::Device{c10::kCPU};
      } else if (name == "generator" && argument.isNone()) {
        argument = at::detail::createCPUGenerator();
      } else {
        argument = made.zeros(argument);
      }
    }
    {
      const c10::impl::ExcludeDispatchKeyGuard within{kMetaKey};
      const at::NoGradGuard no_grad;
      op.callBoxed(&arguments.stack);
    }
    for (std::size_t i = 0; i < arguments.schema.returns().size(); ++i) {
      c10::IValue& result = arguments.stack[arguments.stack.size() - 1 - i];
      result = made.meta(result);
    }
  }

 private:
  c10::IValue zeros(const c10::IValue& value) {
    return replaced(value, [&](const at::Tensor& tensor) {
      if (!tensor.is_meta()) { return tensor; }
      const c10::impl::ExcludeDispatchKeyGuard within{kMetaKey};
      at::Tensor zeros = at::zeros(tensor.sizes(), tensor.options().device(at::kCPU));
      stands_for_.emplace_back(zeros, tensor);
      return zeros;
    });
  }

  c10::IValue meta(const c10::IValue& value) const {
    return replaced(value, [&](const at::Tensor& tensor) {
      for (const auto& [zeros, original] : stands_for_) {
        if (!tensor.is_same(zeros)) { continue; }
        if (original.sizes() != zeros.sizes()) { original.resize_(zeros.sizes()); }
        return original;
      }
      return meta_like(tensor);
    });
  }

  template <class Replace>
  static c10::IValue replaced(const c10::IValue& value, Replace&& replace) {
    if (value.isTensor()) {
      return value.toTensor().defined() ? c10::IValue{replace(value.toTensor())} : value;
    }
    if (!value.isTensorList()) { return value; }
    std::vector<at::Tensor> tensors = value.toTensorVector();
    for (at::Tensor& tensor : tensors) { tensor = replace(tensor); }
    return tensors;
  }

  std::vector<std::pair<at::Tensor, at::Tensor>>
      stands_for_;  // zeros, and the tensors whose shape they have
};

// Operators called by this one come here again.
void run_on_meta(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                 ::torch::jit::Stack* stack) {
  const Arguments arguments{op.schema(), *stack};
  bool has_tensors = false;
  bool on_meta = false;
  for (std::size_t i = 0; i < op.schema().arguments().size(); ++i) {
    has_tensors = is_tensor_on(arguments.at(i), on_meta) || has_tensors;
  }
  const bool is_made = go_to_meta(arguments, has_tensors, on_meta);
  if (is_made && op.schema().name() == "aten::randperm") {  // would draw on zeros
    const std::int64_t elems = arguments.named("n")->toInt();
    ::torch::jit::drop(*stack, op.schema().arguments().size());
    return ::torch::jit::push(
        *stack, at::empty({elems}, at::TensorOptions{}.dtype(at::kLong).device(at::kMeta)));
  }
  if ((is_made || on_meta) && !tells_shapes(op)) { return OnZeros::run(op, arguments); }
  op.redispatchBoxed(keys & c10::DispatchKeySet{c10::DispatchKeySet::FULL_AFTER, kMetaKey}, stack);
}

}  // namespace

MetaGuard::MetaGuard() {
  if (meta_guards++ == 0) { c10::impl::tls_set_dispatch_key_included(kMetaKey, true); }
}

MetaGuard::~MetaGuard() {
  if (--meta_guards == 0) { c10::impl::tls_set_dispatch_key_included(kMetaKey, false); }
}

bool makes_meta_tensors() noexcept {
  return meta_guards > 0;
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
  library.fallback(::torch::CppFunction::makeFromBoxedFunction<&tessera::torch::run_on_meta>());
}
