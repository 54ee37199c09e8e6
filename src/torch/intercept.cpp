#include "torch/intercept.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"
#include "torch/passes.hpp"

namespace tessera::torch {

namespace {

// A key of libtorch that a thread can switch on, above autograd and all backends, and that libtorch
// uses for nothing else.
constexpr c10::DispatchKey kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local int guards = 0;
thread_local const char* draw_refusal = nullptr;

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

bool is_generator(const c10::Type& type) {
  if (const auto optional = type.cast<c10::OptionalType>()) {
    return is_generator(*optional->getElementType());
  }
  return type.kind() == c10::TypeKind::GeneratorType;
}

// Every operator that draws has a generator argument, or calls one that has. If none is given, the
// default generator is used.
void refuse_draws(const c10::OperatorHandle& op, const ::torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(*arguments[i].type()) && stack[stack.size() - arguments.size() + i].isNone()) {
      throw ContractError{op.schema().name() + " draws random numbers " + draw_refusal};
    }
  }
}

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  ::torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  std::vector<Use> uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* const alias = arguments[i].alias_info();
    note((*stack)[stack->size() - arguments.size() + i], alias != nullptr && alias->isWrite(),
         uses);
  }
  if (!uses.empty()) { Passes::use(uses, op.schema().name()); }
  if (draw_refusal != nullptr) {
    refuse_draws(op, *stack);
    return op.redispatchBoxed(keys & c10::DispatchKeySet{c10::DispatchKeySet::FULL_AFTER, kKey},
                              stack);
  }
  // Operators called by this one work on the same tensors.
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

NoInterception::NoInterception() : excluded_before_{c10::impl::tls_is_dispatch_key_excluded(kKey)} {
  c10::impl::tls_set_dispatch_key_excluded(kKey, true);
}

NoInterception::~NoInterception() {
  c10::impl::tls_set_dispatch_key_excluded(kKey, excluded_before_);
}

NoDraws::NoDraws(const char* why) : before_{std::exchange(draw_refusal, why)} {}

NoDraws::~NoDraws() {
  draw_refusal = before_;
}

}  // namespace tessera::torch

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(::torch::CppFunction::makeFromBoxedFunction<&tessera::torch::run_operator>());
}
