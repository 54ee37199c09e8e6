#include "torch/drawing_operators.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/enum_tag.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "torch/rank_random.hpp"

namespace tessera::torch {

namespace {

enum class Draws : std::uint8_t {
  no,
  from_argument,  // it has a generator argument
  within,         // it calls operators that do, or draws from the default generator of CUDA
};

struct Kind {
  Draws draws = Draws::no;
  std::size_t generator = 0;                 // the argument's number
  std::optional<std::size_t> switched = {};  // that of an argument which is false if it draws not
  std::optional<std::size_t> share = {};     // the same for a probability: 0
};

bool is_generator(const c10::Type& type) {
  if (const auto optional = type.cast<c10::OptionalType>()) {
    return is_generator(*optional->getElementType());
  }
  return type.kind() == c10::TypeKind::GeneratorType;
}

// Operators that are not libtorch's own may call any.
bool is_of_program(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  for (const std::string_view own : {"aten::", "prim::", "prims::", "quantized::", "mkldnn::"}) {
    if (name.starts_with(own)) { return false; }
  }
  return true;
}

Kind find_kind(const c10::OperatorHandle& op) {
  Kind kind;
  const auto& arguments = op.schema().arguments();
  bool drops = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (is_generator(*arguments[i].type())) {
      return {.draws = Draws::from_argument, .generator = i};
    }
    const std::string_view name = arguments[i].name();
    if (name == "dropout" || name == "dropout_p") {
      kind.share = i;
      drops = true;
    }
    if (name == "train" || name == "training") { kind.switched = i; }
  }
  if (drops || op.hasTag(at::Tag::nondeterministic_seeded) || is_of_program(op)) {
    kind.draws = Draws::within;
  }
  return kind;
}

const Kind& kind_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, Kind> known;
  const auto [at, is_new] = known.try_emplace(&op.schema());
  if (is_new) { at->second = find_kind(op); }
  return at->second;
}

const c10::IValue& argument(const c10::OperatorHandle& op, const ::torch::jit::Stack& stack,
                            std::size_t i) {
  return stack[stack.size() - op.schema().arguments().size() + i];
}

bool is_off(const Kind& kind, const c10::OperatorHandle& op, const ::torch::jit::Stack& stack) {
  if (kind.switched) {
    const c10::IValue& train = argument(op, stack, *kind.switched);
    if (train.isBool() && !train.toBool()) { return true; }
  }
  if (!kind.share) { return false; }
  const c10::IValue& share = argument(op, stack, *kind.share);
  return share.isDouble() && share.toDouble() == 0.0;
}

bool is_default(const c10::IValue& generator) {
  return generator.isNone() || (generator.isGenerator() &&
                                generator.toGenerator() == at::detail::getDefaultCPUGenerator());
}

}  // namespace

DrawRun prepare_draws(RankRandom& random, const c10::OperatorHandle& op,
                      ::torch::jit::Stack& stack) {
  const Kind& kind = kind_of(op);
  if (kind.draws == Draws::no || is_off(kind, op, stack)) { return DrawRun::alone; }
  const at::Generator* const own = random.on(device_of_draws(op, stack));
  if (kind.draws == Draws::from_argument) {
    c10::IValue& generator = stack[stack.size() - op.schema().arguments().size() + kind.generator];
    if (own != nullptr && is_default(generator)) { generator = *own; }
    return DrawRun::alone;
  }
  return own != nullptr && own->device().is_cuda() ? DrawRun::stand_in : DrawRun::with_inner;
}

at::Device device_of_draws(const c10::OperatorHandle& op, const ::torch::jit::Stack& stack) {
  const auto& arguments = op.schema().arguments();
  at::Device named = at::kCPU;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = argument(op, stack, i);
    if (value.isTensor() && value.toTensor().defined()) { return value.toTensor().device(); }
    if (value.isDevice() && arguments[i].name() == "device") { named = value.toDevice(); }
  }
  return named;
}

bool may_draw(const c10::OperatorHandle& op) {
  return kind_of(op).draws != Draws::no;
}

}  // namespace tessera::torch
