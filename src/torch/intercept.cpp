#include "torch/intercept.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>
#include <vector>

#include "torch/passes.hpp"

namespace tessera::torch {

namespace {

// A key of libtorch's that a thread can switch on, above autograd and all backends, and that nothing
// else in libtorch has a meaning for.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local int guards = 0;

void note(const at::Tensor& tensor, bool writes, std::vector<Use>& uses) {
  if (Place* const place = Place::of(tensor)) { uses.push_back({place, writes}); }
}

void note(const c10::IValue& value, bool writes, std::vector<Use>& uses) {
  if (value.isTensor()) {
    note(value.toTensor(), writes, uses);
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) { note(tensor, writes, uses); }
  } else if (value.isList()) {  // of optional tensors, among others
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) { note(element.toTensor(), writes, uses); }
    }
  }
}

void run_operator(const c10::OperatorHandle& op, ::torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  std::vector<Use> uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    note((*stack)[stack->size() - arguments.size() + i], alias != nullptr && alias->isWrite(),
         uses);
  }
  if (!uses.empty()) { Passes::use(uses, op.schema().name()); }
  // What an operator calls works on the same tensors.
  const c10::impl::ExcludeDispatchKeyGuard within{kKey};
  op.callBoxed(stack);
}

}  // namespace

Interception::Interception() {
  if (guards++ == 0) { c10::impl::tls_set_dispatch_key_included(kKey, true); }
}

Interception::~Interception() {
  if (--guards == 0) { c10::impl::tls_set_dispatch_key_included(kKey, false); }
}

}  // namespace tessera::torch

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(::torch::CppFunction::makeFromBoxedFunction<&tessera::torch::run_operator>());
}
