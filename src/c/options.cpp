#include "c/options.hpp"

#include <limits>
#include <string>
#include <type_traits>

#include "c/parameter_info.hpp"
#include "c/structs.hpp"
#include "tessera/base/error.hpp"

namespace tessera::c {
namespace {

tessera_world_options world_defaults() {
  const WorldOptions with;
  return {.size = sizeof(tessera_world_options),
          .device = static_cast<std::int32_t>(with.device),
          .cuda_ordinal = -1,
          .threads = with.threads,
          .host_threads = with.host_threads,
          .deadline_ms = with.deadline.count(),
          .budget_bytes = 0,
          .deterministic = 0,
          .reserved = 0,
          .products = nullptr,
          .attention_workspace_bytes = with.tuning.attention_workspace_bytes,
          .nondeterministic_attention = 0,
          .channel_priority = static_cast<std::int32_t>(with.tuning.channel_priority),
          .nccl_min_ctas = with.nccl.min_ctas,
          .nccl_max_ctas = with.nccl.max_ctas,
          .nccl_windows = 0,
          .spared_multiprocessors = with.tuning.spared_multiprocessors};
}

tessera_dtype to_c(DType dtype) {
  return static_cast<tessera_dtype>(dtype) + TESSERA_FP32;
}

tessera_model_options model_defaults() {
  const ModelOptions with;
  return {.size = sizeof(tessera_model_options),
          .strategy = static_cast<tessera_strategy>(with.strategy),
          .shard_group = with.shard_group,
          .compute = to_c(with.compute),
          .accumulate = with.accumulate,
          .checks = static_cast<std::int32_t>(with.checks),
          .inference = 0,
          .remainders = 0,
          .gradient = to_c(with.gradient),
          .reduce = to_c(with.reduce),
          .loss_scaling = static_cast<std::int32_t>(with.loss_scaling.mode),
          .loss_scale_initial = with.loss_scaling.initial,
          .loss_scale_growth = with.loss_scaling.growth,
          .loss_scale_backoff = with.loss_scaling.backoff,
          .loss_scale_minimum = with.loss_scaling.minimum,
          .loss_scale_growth_interval = with.loss_scaling.growth_interval,
          .max_skips = with.max_skips,
          .prefetch = with.prefetch,
          .prefetch_backward = -1,
          .reshard = static_cast<std::int32_t>(with.reshard),
          .accumulate_mode = static_cast<std::int32_t>(with.accumulate_mode),
          .persist_elems = with.persist_elems,
          .bucket_bytes = with.bucket_bytes,
          .first_bucket_bytes = with.tuning.first_bucket_bytes,
          .offload = static_cast<std::int32_t>(with.offload),
          .offload_keep = with.offload_keep,
          .align_elems = with.align_elems,
          .mesh_replicate = 0,
          .mesh_shard = 0};
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
  const OptimizerOptions with;
  tessera_optimizer_options to = {};
  to.size = sizeof to;
  to.rule = rule;
  to.clip_norm = with.clip_norm;
  to.rounding_seed = with.rounding_seed;
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
  to.device = enumerator(call, "device", from.device, DeviceKind::cuda);
  if (from.cuda_ordinal != -1) { to.cuda_ordinal = from.cuda_ordinal; }
  to.threads = from.threads;
  to.host_threads = from.host_threads;
  to.deadline = std::chrono::milliseconds{from.deadline_ms};
  if (from.budget_bytes != 0) { to.budget_bytes = from.budget_bytes; }
  to.deterministic = flag(call, "deterministic", from.deterministic);
  if (from.products != nullptr) { to.products = from.products; }
  to.tuning.attention_workspace_bytes = from.attention_workspace_bytes;
  to.nondeterministic_attention =
      flag(call, "nondeterministic_attention", from.nondeterministic_attention);
  to.tuning.channel_priority =
      enumerator(call, "channel_priority", from.channel_priority, StreamPriority::high);
  to.nccl.min_ctas = from.nccl_min_ctas;
  to.nccl.max_ctas = from.nccl_max_ctas;
  to.nccl.windows = flag(call, "nccl_windows", from.nccl_windows);
  to.tuning.spared_multiprocessors = from.spared_multiprocessors;
  require_zero(call, "tessera_world_options", from.reserved);
  return to;
}

ModelOptions model_options(Call call, const tessera_model_options* given) {
  const tessera_model_options from =
      given_or(call, "tessera_model_options", given, model_defaults());
  ModelOptions to;
  to.strategy = enumerator(call, "strategy", from.strategy, Strategy::hybrid);
  to.shard_group = from.shard_group;
  to.compute = dtype_of(call, "compute", from.compute);
  to.accumulate = from.accumulate;
  to.checks = enumerator(call, "checks", from.checks, Checks::memory);
  to.purpose = flag(call, "inference", from.inference) ? Purpose::inference : Purpose::training;
  to.mesh = mesh_of(call, from);
  to.master_weights =
      flag(call, "remainders", from.remainders) ? MasterWeights::remainder : MasterWeights::fp32;
  to.gradient = dtype_of(call, "gradient", from.gradient);
  to.reduce = dtype_of(call, "reduce", from.reduce);
  to.loss_scaling.mode = enumerator(call, "loss_scaling", from.loss_scaling, LossScaleMode::fixed);
  to.loss_scaling.initial = from.loss_scale_initial;
  to.loss_scaling.growth = from.loss_scale_growth;
  to.loss_scaling.backoff = from.loss_scale_backoff;
  to.loss_scaling.minimum = from.loss_scale_minimum;
  to.loss_scaling.growth_interval = from.loss_scale_growth_interval;
  to.max_skips = from.max_skips;
  to.prefetch = from.prefetch;
  if (from.prefetch_backward != -1) { to.tuning.prefetch_backward = from.prefetch_backward; }
  to.reshard = enumerator(call, "reshard", from.reshard, Reshard::after_backward);
  to.persist_elems = from.persist_elems;
  to.accumulate_mode =
      enumerator(call, "accumulate_mode", from.accumulate_mode, AccumulateMode::deferred);
  to.bucket_bytes = from.bucket_bytes;
  to.tuning.first_bucket_bytes = from.first_bucket_bytes;
  to.offload = enumerator(call, "offload", from.offload, Offload::state);
  to.offload_keep = from.offload_keep;
  to.align_elems = from.align_elems;
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
  to.clip_norm = from.clip_norm;
  to.moments = enumerator(call, "moments", from.moments, MomentFormat::int8);
  to.rounding = flag(call, "round_stochastically", from.round_stochastically) ? Rounding::stochastic
                                                                              : Rounding::nearest;
  to.rounding_seed = from.rounding_seed;
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
