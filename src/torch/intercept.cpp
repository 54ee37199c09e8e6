#include "torch/intercept.hpp"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tessera/base/error.hpp"
#include "torch/drawing_operators.hpp"
#include "torch/gradient_stand_ins.hpp"
#include "torch/passes.hpp"
#include "torch/rank_random.hpp"
#include "torch/written_memory.hpp"

namespace tessera::torch {

namespace {

thread_local int guards = 0;

// Those of the guards of this thread, from the outermost.
std::vector<WrittenMemory*>& noting() {
  thread_local std::vector<WrittenMemory*> all;
  return all;
}

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) { visit(tensor); }
  } else if (value.isList()) {  // of optional tensors, among others
    for (const c10::IValue& element : value.toListRef()) {
      if (element.isTensor()) { visit(element.toTensor()); }
    }
  }
}

// Operators of batch and instance norms write their running statistics, and do not say so.
bool is_written(const c10::Argument& argument) {
  const c10::AliasInfo* const alias = argument.alias_info();
  if (alias != nullptr && alias->isWrite()) { return true; }
  const std::string_view name = argument.name();
  return name == "running_mean" || name == "running_var";
}

// Shows the operator's arguments to whatever notes them, and returns its uses of places.
std::vector<Use> uses_of(const c10::OperatorHandle& op, const ::torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  std::vector<Use> uses;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool writes = is_written(arguments[i]);
    for_each_tensor(stack[stack.size() - arguments.size() + i], [&](const at::Tensor& tensor) {
      if (Place* const place = Place::of(tensor)) {
        uses.push_back({place, writes, tensor.requires_grad() && at::GradMode::is_enabled()});
      } else {
        for (WrittenMemory* const memory : noting()) { memory->argument(tensor, writes); }
      }
    });
  }
  return uses;
}

void note_results(const c10::OperatorHandle& op, const ::torch::jit::Stack& stack) {
  if (noting().empty()) { return; }
  const std::size_t count = op.schema().returns().size();
  for (std::size_t i = stack.size() - count; i < stack.size(); ++i) {
    for_each_tensor(stack[i], [](const at::Tensor& tensor) {
      if (Place::of(tensor) != nullptr) { return; }
      for (WrittenMemory* const memory : noting()) { memory->result(tensor); }
    });
  }
}

// Whether the operator reads no values: it asks for a property, or converts a tensor to what it
// already is, and so returns it (module->to of the device that it is on).
bool reads_nothing(const c10::OperatorHandle& op, const ::torch::jit::Stack& stack) {
  const std::string& name_of_op = op.schema().name();
  if (name_of_op == "aten::_has_compatible_shallow_copy_type" || name_of_op == "aten::detach") {
    return true;
  }
  if (name_of_op != "aten::to") { return false; }
  const auto& arguments = op.schema().arguments();
  const auto argument = [&](std::size_t i) -> const c10::IValue& {
    return stack[stack.size() - arguments.size() + i];
  };
  const at::Tensor& self = argument(0).toTensor();
  const auto is_on = [&](const at::Device& device) {
    return device.type() == self.device().type() &&
           (!device.has_index() || device == self.device());
  };
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    const c10::IValue& value = argument(i);
    if (value.isNone() || name == "non_blocking") { continue; }
    const bool same = name == "dtype"    ? value.toScalarType() == self.scalar_type()
                      : name == "device" ? is_on(value.toDevice())
                      : name == "layout" ? value.toLayout() == self.layout()
                      : name == "other"  ? value.toTensor().scalar_type() == self.scalar_type() &&
                                              is_on(value.toTensor().device())
                                        : value.isBool() && !value.toBool();  // copy, pin_memory
    if (!same) { return false; }
  }
  return true;
}

// Operators of libtorch share some work among threads of their own, once the memory is open.
void require_own_thread(const std::vector<Use>& uses, const c10::OperatorHandle& op) {
  const auto foreign = std::ranges::find_if(
      uses, [](const Use& use) { return !use.place->home().passes().is_at_home(); });
  if (foreign == uses.end() || at::in_parallel_region()) { return; }
  throw ContractError{
      op.schema().name() + " uses parameter \"" + foreign->place->home().name() +
      "\" of a sharded module on another thread than its rank's, which may open and close it at "
      "any "
      "time; give that thread copies: what state_dict() returns, or a module that loads them"};
}

void run_operator(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  ::torch::jit::Stack* stack) {
  const std::vector<Use> uses = uses_of(op, *stack);
  if (!uses.empty()) {
    require_own_thread(uses, op);
    if (GradientStandIns::run(uses, op, *stack)) { return; }
    if (!reads_nothing(op, *stack)) { Passes::use(uses, op.schema().name()); }
  }
  RankRandom* const random = RankRandom::current();
  const DrawRun how = random != nullptr ? prepare_draws(*random, op, *stack) : DrawRun::alone;
  // Operators called by this one work on the same tensors.
  const auto alone = [&] {
    const c10::impl::ExcludeDispatchKeyGuard within{kShownKey};
    op.callBoxed(stack);
  };
  switch (how) {
    case DrawRun::alone:
      alone();
      break;
    case DrawRun::with_inner:
      op.redispatchBoxed(keys & c10::DispatchKeySet{c10::DispatchKeySet::FULL_AFTER, kShownKey},
                         stack);
      break;
    case DrawRun::stand_in:
      random->stand_in(device_of_draws(op, *stack), alone);
      break;
  }
  note_results(op, *stack);
}

}  // namespace

Interception::Interception() {
  if (guards++ == 0) { c10::impl::tls_set_dispatch_key_included(kShownKey, true); }
}

Interception::~Interception() {
  if (--guards == 0) { c10::impl::tls_set_dispatch_key_included(kShownKey, false); }
}

NoInterception::NoInterception()
    : excluded_before_{c10::impl::tls_is_dispatch_key_excluded(kShownKey)} {
  c10::impl::tls_set_dispatch_key_excluded(kShownKey, true);
}

NoInterception::~NoInterception() {
  c10::impl::tls_set_dispatch_key_excluded(kShownKey, excluded_before_);
}

NotedWrites::NotedWrites(WrittenMemory& memory)
    : included_before_{c10::impl::tls_is_dispatch_key_included(kShownKey)} {
  noting().push_back(&memory);
  c10::impl::tls_set_dispatch_key_included(kShownKey, true);
}

NotedWrites::~NotedWrites() {
  c10::impl::tls_set_dispatch_key_included(kShownKey, included_before_);
  noting().pop_back();
}

}  // namespace tessera::torch

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(::torch::CppFunction::makeFromBoxedFunction<&tessera::torch::run_operator>());
}
