#include "c/options.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "c/parameter_info.hpp"
#include "c/structs.hpp"
#include "tessera/base/error.hpp"

namespace tessera::c {
namespace {

/// An enumeration that C has as a flag.
struct Flag {};

/// Calls `visit(name, member in C, member in C++)` for every option that both structs have. An
/// enumeration has a fourth argument: the last enumerator that C may give, or Flag. The texts of
/// errors quote the name.
template <class InC, class Visit>
void for_each_option(InC& c, WorldOptions& with, const Visit& visit) {
  visit("device", c.device, with.device, DeviceKind::cuda);
  visit("cuda_ordinal", c.cuda_ordinal, with.cuda_ordinal);
  visit("threads", c.threads, with.threads);
  visit("host_threads", c.host_threads, with.host_threads);
  visit("deadline_ms", c.deadline_ms, with.deadline);
  visit("budget_bytes", c.budget_bytes, with.budget_bytes);
  visit("deterministic", c.deterministic, with.deterministic);
  visit("products", c.products, with.products);
  visit("attention_workspace_bytes", c.attention_workspace_bytes,
        with.tuning.attention_workspace_bytes);
  visit("nondeterministic_attention", c.nondeterministic_attention,
        with.nondeterministic_attention);
  visit("channel_priority", c.channel_priority, with.tuning.channel_priority, StreamPriority::high);
  visit("nccl_min_ctas", c.nccl_min_ctas, with.nccl.min_ctas);
  visit("nccl_max_ctas", c.nccl_max_ctas, with.nccl.max_ctas);
  visit("nccl_windows", c.nccl_windows, with.nccl.windows);
  visit("spared_multiprocessors", c.spared_multiprocessors, with.tuning.spared_multiprocessors);
}

template <class InC, class Visit>
void for_each_option(InC& c, ModelOptions& with, const Visit& visit) {
  visit("strategy", c.strategy, with.strategy, Strategy::hybrid);
  visit("shard_group", c.shard_group, with.shard_group);
  visit("compute", c.compute, with.compute);
  visit("accumulate", c.accumulate, with.accumulate);
  visit("checks", c.checks, with.checks, Checks::memory);
  visit("inference", c.inference, with.purpose, Flag{});
  visit("remainders", c.remainders, with.master_weights, Flag{});
  visit("gradient", c.gradient, with.gradient);
  visit("reduce", c.reduce, with.reduce);
  visit("loss_scaling", c.loss_scaling, with.loss_scaling.mode, LossScaleMode::fixed);
  visit("loss_scale_initial", c.loss_scale_initial, with.loss_scaling.initial);
  visit("loss_scale_growth", c.loss_scale_growth, with.loss_scaling.growth);
  visit("loss_scale_backoff", c.loss_scale_backoff, with.loss_scaling.backoff);
  visit("loss_scale_minimum", c.loss_scale_minimum, with.loss_scaling.minimum);
  visit("loss_scale_growth_interval", c.loss_scale_growth_interval,
        with.loss_scaling.growth_interval);
  visit("max_skips", c.max_skips, with.max_skips);
  visit("prefetch", c.prefetch, with.prefetch);
  visit("prefetch_backward", c.prefetch_backward, with.tuning.prefetch_backward);
  visit("reshard", c.reshard, with.reshard, Reshard::after_backward);
  visit("accumulate_mode", c.accumulate_mode, with.accumulate_mode, AccumulateMode::deferred);
  visit("persist_elems", c.persist_elems, with.persist_elems);
  visit("bucket_bytes", c.bucket_bytes, with.bucket_bytes);
  visit("first_bucket_bytes", c.first_bucket_bytes, with.tuning.first_bucket_bytes);
  visit("offload", c.offload, with.offload, Offload::state);
  visit("offload_keep", c.offload_keep, with.offload_keep);
  visit("align_elems", c.align_elems, with.align_elems);
  visit("keep_whole", c.keep_whole, with.keep_whole, KeepWhole::where_smaller);
}

template <class InC, class Visit>
void for_each_option(InC& c, OptimizerOptions& with, const Visit& visit) {
  visit("clip_norm", c.clip_norm, with.clip_norm);
  visit("moments", c.moments, with.moments, MomentFormat::int8);
  visit("round_stochastically", c.round_stochastically, with.rounding, Flag{});
  visit("rounding_seed", c.rounding_seed, with.rounding_seed);
}

/// The number of C that stands for no value: a device or a number of units may be 0, bytes not.
template <class Value>
constexpr int kNone = std::is_same_v<Value, int> ? -1 : 0;

/// Writes an option to C.
struct Write {
  template <class InC, class Value, class... Last>
  void operator()(const char* /*name*/, InC& c, const Value& value, Last... /*last*/) const {
    if constexpr (std::is_same_v<Value, DType>) {
      c = static_cast<tessera_dtype>(value) + TESSERA_FP32;
    } else if constexpr (std::is_same_v<Value, std::chrono::milliseconds>) {
      c = value.count();
    } else if constexpr (!std::is_same_v<Value, std::string>) {
      c = static_cast<InC>(value);
    }
  }
  template <class InC, class Value>
  void operator()(const char* /*name*/, InC& c, const std::optional<Value>& value) const {
    c = value ? static_cast<InC>(*value) : static_cast<InC>(kNone<Value>);
  }
};

/// Reads an option of C.
struct Read {
  Call call;

  template <class Enum>
  void operator()(const char* name, std::int32_t c, Enum& value, Enum last) const {
    value = enumerator(call, name, c, last);
  }
  template <class Enum>
  void operator()(const char* name, std::int32_t c, Enum& value, Flag /*two values*/) const {
    value = static_cast<Enum>(flag(call, name, c));
  }
  template <class InC, class Value>
  void operator()(const char* name, InC c, Value& value) const {
    if constexpr (std::is_same_v<Value, DType>) {
      value = dtype_of(call, name, c);
    } else if constexpr (std::is_same_v<Value, bool>) {
      value = flag(call, name, c);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      value = c == nullptr ? "" : c;
    } else {
      static_assert(!std::is_enum_v<Value>);
      value = Value{c};
    }
  }
  template <class InC, class Value>
  void operator()(const char* /*name*/, InC c, std::optional<Value>& value) const {
    if (!std::cmp_equal(c, kNone<Value>)) { value = c; }
  }
};

/// The struct of C with the defaults of `Options`.
template <class InC, class Options>
InC defaults_of() {
  Options with;
  InC to = {};
  to.size = sizeof to;
  for_each_option(to, with, Write{});
  return to;
}

tessera_world_options world_defaults() {
  return defaults_of<tessera_world_options, WorldOptions>();
}

tessera_model_options model_defaults() {
  return defaults_of<tessera_model_options, ModelOptions>();
}

/// The fields of `rule` that the struct has as members.
template <class Rule>
void write_rule(const Rule& rule, tessera_optimizer_options& to) {
  to.lr = rule.lr;
  to.weight_decay = rule.weight_decay;
  if constexpr (requires { rule.beta1; }) {
    to.beta1 = rule.beta1;
    to.beta2 = rule.beta2;
  }
  if constexpr (requires { rule.eps; }) { to.eps = rule.eps; }
  if constexpr (requires { rule.momentum; }) { to.momentum = rule.momentum; }
}

template <class Rule>
Rule read_rule(const tessera_optimizer_options& from) {
  Rule rule;
  rule.lr = from.lr;
  rule.weight_decay = from.weight_decay;
  if constexpr (requires { rule.beta1; }) {
    rule.beta1 = from.beta1;
    rule.beta2 = from.beta2;
  }
  if constexpr (requires { rule.eps; }) { rule.eps = from.eps; }
  if constexpr (requires { rule.momentum; }) { rule.momentum = from.momentum; }
  return rule;
}

/// Calls `work` with the default values of rule `number`, as the rule's type.
template <class Work>
void with_rule(Call call, std::int32_t number, const Work& work) {
  switch (number) {
    case TESSERA_ADAMW:
      return work(AdamW{});
    case TESSERA_ADAM:
      return work(Adam{});
    case TESSERA_SGD:
      return work(SGD{});
    case TESSERA_LION:
      return work(Lion{});
    default:
      call.refuse(fmt::format(
          "update rule {} does not exist; use TESSERA_ADAMW or another of the header's", number));
  }
}

tessera_optimizer_options optimizer_defaults(Call call, std::int32_t rule) {
  auto to = defaults_of<tessera_optimizer_options, OptimizerOptions>();
  to.rule = rule;
  with_rule(call, rule, [&](const auto& numbers) { write_rule(numbers, to); });
  return to;
}

ParameterGroup group_of(Call call, const tessera_parameter_group& group) {
  call.require(group.name, "the name of a parameter group");
  if (group.chooses == nullptr) {
    call.refuse(fmt::format("the group '{}' has no function `chooses`; set it", group.name));
  }
  require_zero(call, "a parameter group", group.reserved);
  require_zero(call, "a parameter group", group.reserved_flag);
  ParameterGroup result{.name = group.name, .lr_scale = group.lr_scale};
  result.contains = [chooses = group.chooses, user = group.user](const ParameterInfo& parameter) {
    return chooses(&CParameterInfo{parameter}.info(), user) != 0;
  };
  if (flag(call, "has_weight_decay", group.has_weight_decay)) {
    result.weight_decay = group.weight_decay;
  }
  return result;
}

std::vector<MeshDim> mesh_of(Call call, const tessera_model_options& from) {
  if (from.mesh_replicate == 0 && from.mesh_shard == 0) { return {}; }
  if (from.mesh_replicate == 0 || from.mesh_shard == 0) {
    call.refuse("a mesh needs both `mesh_replicate` and `mesh_shard`, 1 or more, or neither");
  }
  return {{"replicate", from.mesh_replicate}, {"shard", from.mesh_shard}};
}

}  // namespace

WorldOptions world_options(Call call, const tessera_world_options* given) {
  const tessera_world_options from =
      given_or(call, "tessera_world_options", given, world_defaults());
  WorldOptions to;
  for_each_option(from, to, Read{call});
  require_zero(call, "tessera_world_options", from.reserved);
  return to;
}

ModelOptions model_options(Call call, const tessera_model_options* given) {
  const tessera_model_options from =
      given_or(call, "tessera_model_options", given, model_defaults());
  ModelOptions to;
  for_each_option(from, to, Read{call});
  require_zero(call, "tessera_model_options", from.reserved);
  to.mesh = mesh_of(call, from);
  return to;
}

OptimizerChoice optimizer_choice(Call call, const tessera_optimizer_options* given) {
  call.require(given, "tessera_optimizer_options");
  require_size<tessera_optimizer_options>(call, "tessera_optimizer_options", given->size);
  const tessera_optimizer_options from =
      given_or(call, "tessera_optimizer_options", given, optimizer_defaults(call, given->rule));
  OptimizerChoice choice;
  with_rule(call, from.rule, [&](const auto& numbers) {
    choice.rule = read_rule<std::decay_t<decltype(numbers)>>(from);
  });
  OptimizerOptions& to = choice.options;
  for_each_option(from, to, Read{call});
  if (from.decays != nullptr) {
    to.decays = [decays = from.decays, user = from.decays_user](std::string_view name,
                                                                const Shape& shape) {
      return decays(std::string{name}.c_str(), shape.dims().data(), shape.rank(), user) != 0;
    };
  }
  call.require_array(from.groups, "groups", from.group_count);
  for (std::size_t i = 0; i < from.group_count; ++i) {
    to.groups.push_back(group_of(call, from.groups[i]));
  }
  return choice;
}

DType dtype_of(Call call, const char* name, tessera_dtype dtype) {
  if (dtype < TESSERA_FP32 || dtype > TESSERA_FP64) {
    call.refuse(
        fmt::format("{} is {}, which is no dtype; use TESSERA_FP32, TESSERA_BF16 or TESSERA_FP16",
                    name, dtype));
  }
  return static_cast<DType>(dtype - TESSERA_FP32);
}

Category category_of(Call call, tessera_category category) {
  return enumerator(call, "category", category, Category::unattributed);
}

}  // namespace tessera::c

using namespace tessera::c;

tessera_status tessera_world_options_init(tessera_world_options* options, size_t size) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_world_options", options, size, world_defaults());
  });
}

tessera_status tessera_model_options_init(tessera_model_options* options, size_t size) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_model_options", options, size, model_defaults());
  });
}

tessera_status tessera_optimizer_options_init(tessera_optimizer_options* options, size_t size,
                                              int32_t rule) {
  return guarded(__func__, [&](Call call) {
    write_sized(call, "tessera_optimizer_options", options, size, optimizer_defaults(call, rule));
  });
}

tessera_status tessera_strategy_from(const char* name, tessera_strategy* strategy) {
  return guarded(__func__, [&](Call call) {
    call.require(name, "name");
    call.require(strategy, "strategy");
    *strategy = static_cast<tessera_strategy>(tessera::parse_strategy(name));
  });
}
