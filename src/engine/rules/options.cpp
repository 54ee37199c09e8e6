#include "engine/rules/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <set>
#include <string_view>
#include <type_traits>
#include <variant>

#include "base/enumerator.hpp"
#include "engine/rules/option_list.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera {
namespace {

using engine::for_each_model_option;
using engine::Needs;

void check_enumerators(const ModelOptions& options) {
  for_each_model_option([&](const auto& option) {
    const auto& value = option.of(options);
    using Value = std::remove_cvref_t<decltype(value)>;
    if constexpr (std::is_enum_v<Value> && !std::is_same_v<Value, DType>) {
      require_enumerator(fmt::format("`{}`", option.name), value, kLast<Value>);
    }
  });
  require_enumerator("`reduce`", options.reduce, DType::fp64);
  require_enumerator("`loss_scaling.mode`", options.loss_scaling.mode, kLast<LossScaleMode>);
}

/// The name of the last option with such needs whose value is not the default; empty: there is
/// none.
std::string_view given_with(Needs needs, const ModelOptions& options) {
  static const ModelOptions defaults;
  std::string_view given;
  for_each_model_option([&](const auto& option) {
    if (option.needs == needs && option.of(options) != option.of(defaults)) { given = option.name; }
  });
  return given;
}

void check_dtype(std::string_view what, DType dtype) {
  require_enumerator(what, dtype, DType::fp64);
  if (dtype != DType::fp64) { return; }
  throw ConfigError{
      fmt::format("{} is fp64, which is not supported: choose fp32, bf16 or fp16", what)};
}

void check_reduce(DType reduce) {
  if (reduce == DType::fp32 || reduce == DType::bf16) { return; }
  throw ConfigError{
      fmt::format("`reduce` is {}, which is not supported: choose fp32, or bf16, whose range "
                  "equals that of fp32",
                  to_string(reduce))};
}

void check_align(std::int64_t align_elems) {
  constexpr std::int64_t most = std::int64_t{1} << 20;
  if (align_elems >= kAlignElems && align_elems <= most && align_elems % kAlignElems == 0) {
    return;
  }
  throw ConfigError{fmt::format("`align_elems` is {}: choose a multiple of {} elements up to 2^20",
                                align_elems, kAlignElems)};
}

void check_purpose(const ModelOptions& options) {
  if (options.purpose == Purpose::training) { return; }
  const auto refuse = [&](Needs needs, std::string_view lacks) {
    const std::string_view given = given_with(needs, options);
    if (given.empty()) { return; }
    throw ConfigError{
        fmt::format("`{}` has no effect on a model for inference, because it has no {}: leave it "
                    "at its default",
                    given, lacks)};
  };
  refuse(Needs::gradients, "gradients");
  refuse(Needs::backward_gathers, "backward");
}

void check_prefetch(const char* name, int units) {
  if (units >= 0 && units <= 1024) { return; }
  throw ConfigError{
      fmt::format("`{}` is {}: choose a number of units from 0 to 1024", name, units)};
}

void check_resharding(const ModelOptions& options) {
  check_prefetch("prefetch", options.prefetch);
  check_prefetch("tuning.prefetch_backward", options.tuning.prefetch_backward.value_or(0));
  if (options.persist_elems < 0) {
    throw ConfigError{
        fmt::format("`persist_elems` is {}: choose a number of elements, or 0 to persist no unit",
                    options.persist_elems)};
  }
  for (const Needs needs : {Needs::gathers, Needs::backward_gathers}) {
    const std::string_view given = given_with(needs, options);
    if (!given.empty()) { require_gathering(options.strategy, given); }
  }
}

void check_offload(const ModelOptions& options) {
  const float keep = options.offload_keep;
  if (!(keep >= 0.0F && keep < 1.0F)) {
    throw ConfigError{fmt::format(
        "`offload_keep` is {}: choose the fraction of the optimizer's state that stays on the "
        "device, at least 0 and below 1; to offload nothing, leave `offload` at none",
        keep)};
  }
  if (keep > 0.0F && options.offload == Offload::none) {
    throw ConfigError{
        "`offload_keep` has no effect, because the optimizer is not offloaded: leave it at 0, or "
        "set `offload` to optimizer or state"};
  }
  if (options.offload == Offload::optimizer && options.master_weights != MasterWeights::fp32) {
    throw ConfigError{
        "`master_weights` remainder cannot be combined with `offload` optimizer, because the host "
        "updates whole master weights: leave `master_weights` at fp32, or set `offload` to none or "
        "state"};
  }
}

void check_accumulation(const ModelOptions& options) {
  if (options.accumulate < 1) {
    throw ConfigError{fmt::format("`accumulate` is {}: choose at least 1 micro-batch a step",
                                  options.accumulate)};
  }
  const char* zero = nullptr;
  if (options.bucket_bytes == 0) { zero = "bucket_bytes"; }
  if (options.tuning.first_bucket_bytes == 0) { zero = "tuning.first_bucket_bytes"; }
  if (zero != nullptr) { throw ConfigError{fmt::format("`{}` is 0: choose 1 byte or more", zero)}; }
  if (options.tuning.gradient_slots < 2 || options.tuning.gradient_slots > 1024) {
    throw ConfigError{
        fmt::format("`tuning.gradient_slots` is {}: choose a number of blocks from 2 (one is "
                    "filled while another is reduced) to 1024",
                    options.tuning.gradient_slots)};
  }
  if (options.max_skips >= 0) { return; }
  throw ConfigError{
      fmt::format("`max_skips` is {}: choose the number of steps skipped in a row that ends the "
                  "run, or 0 for no limit",
                  options.max_skips)};
}

std::string divisors(int ranks) {
  std::string text;
  for (int d = 1; d <= ranks; ++d) {
    if (ranks % d == 0) { text += fmt::format("{}{}", text.empty() ? "" : ", ", d); }
  }
  return text;
}

void check_shard_group(const ModelOptions& options, int ranks) {
  const int group = options.shard_group;
  if (group == 0) { return; }
  if (options.strategy != Strategy::hybrid) {
    throw ConfigError{
        fmt::format("`shard_group` has no effect under {}: leave it at its default, or choose "
                    "hybrid, which shards within groups of that size",
                    to_string(options.strategy))};
  }
  if (group > 0 && group <= ranks && ranks % group == 0) { return; }
  throw ConfigError{fmt::format(
      "`shard_group` is {} and does not divide the number of ranks, {}: choose one of {}", group,
      ranks, divisors(ranks))};
}

void require_loss_scale(bool ok, const char* name, double value, std::string_view rule) {
  if (ok) { return; }
  throw ConfigError{fmt::format("`loss_scaling.{}` is {:g}: it must be {}", name, value, rule)};
}

void check_remainders(const Optimizer& optimizer, const OptimizerOptions& update) {
  if (update.rounding == Rounding::stochastic) {
    throw ConfigError{
        "`rounding` stochastic is incompatible with `master_weights` remainder, which completes "
        "only parameters rounded to nearest: set `rounding` to nearest, or `master_weights` to "
        "fp32"};
  }
  if (const auto* const custom = std::get_if<CustomOptimizer>(&optimizer)) {
    throw ConfigError{
        fmt::format("the optimizer '{}' updates fp32 weights, which `master_weights` remainder "
                    "does not keep: set `master_weights` to fp32, or use one of the library's "
                    "optimizers",
                    custom->name)};
  }
}

}  // namespace

void require_gathering(Strategy strategy, std::string_view option) {
  if (engine::gathers(strategy)) { return; }
  throw ConfigError{
      fmt::format("`{}` has no effect under {}, whose ranks hold whole parameters: leave it at its "
                  "default, or choose zero3 or hybrid, which gather them",
                  option, to_string(strategy))};
}

void validate(const ModelOptions& options, int ranks) {
  check_enumerators(options);
  check_dtype("`compute`", options.compute);
  check_dtype("`gradient`", options.gradient);
  check_reduce(options.reduce);
  check_align(options.align_elems);
  check_purpose(options);
  check_resharding(options);
  check_offload(options);
  check_accumulation(options);
  validate(options.loss_scaling, options.compute, options.gradient);
  check_shard_group(options, ranks);
  engine::check_mesh(options, ranks);
}

// Written so that NaN is rejected.
void validate(const LossScaling& scaling, DType compute, DType gradient) {
  const LossScaleMode mode = resolve(scaling.mode, compute, gradient);
  if (mode == LossScaleMode::off) { return; }
  require_loss_scale(scaling.initial > 0.0F && scaling.initial <= LossScaling::kMost, "initial",
                     scaling.initial, "above 0 and at most 2^24 (16777216)");
  if (mode == LossScaleMode::fixed) { return; }
  require_loss_scale(scaling.growth > 1.0F && std::isfinite(scaling.growth), "growth",
                     scaling.growth,
                     "a finite number above 1; for a constant scale use mode fixed");
  require_loss_scale(scaling.backoff > 0.0F && scaling.backoff < 1.0F, "backoff", scaling.backoff,
                     "above 0 and below 1");
  require_loss_scale(scaling.growth_interval >= 1, "growth_interval",
                     static_cast<double>(scaling.growth_interval), "at least 1 step");
  require_loss_scale(scaling.minimum > 0.0F && scaling.minimum <= scaling.initial, "minimum",
                     scaling.minimum, "above 0 and at most the initial scale");
}

void validate(const ModelOptions& options, const Optimizer& optimizer,
              const OptimizerOptions& update) {
  validate(optimizer);
  validate(update, optimizer);
  if (options.master_weights != MasterWeights::fp32) { check_remainders(optimizer, update); }
  if (update.moments != MomentFormat::int8 || options.align_elems % kMomentBlock == 0) { return; }
  throw ConfigError{
      fmt::format("`moments` int8 needs blocks of {} elements, but this model is laid out in "
                  "multiples of {}, which cannot change once it is declared: make it with "
                  "ModelOptions{{.align_elems = {}}}",
                  kMomentBlock, options.align_elems, std::lcm(kMomentBlock, options.align_elems))};
}

void validate_in_graph(const ModelOptions& options) {
  if (options.checks == Checks::memory) {
    throw ConfigError{
        "a step with `checks` memory cannot be one CUDA graph, because its scopes wait for the "
        "device: run it without a graph, or set `checks` to strict or off"};
  }
  if (options.offload == Offload::none) { return; }
  throw ConfigError{
      fmt::format("a step with `offload` {} cannot be one CUDA graph, because its update runs "
                  "beside the next step: run it without a graph, or set `offload` to none",
                  to_string(options.offload))};
}

namespace engine {

void check_unit(const std::string& name, const std::vector<ParameterSpec>& specs,
                const UnitOptions& unit, const ModelOptions& options) {
  for (const ParameterSpec& spec : specs) {
    check_dtype(fmt::format("the dtype of '{}.{}'", name, spec.name),
                spec.dtype.value_or(DType::fp32));
    require_enumerator("`tensor_gradient`", spec.tensor_gradient, TensorGradient::part);
  }
  require_enumerator("`kind` of a unit", unit.kind, UnitKind::root);
  require_enumerator("`gradients` of a unit", unit.gradients, GradientInit::first_write);
  require_enumerator("`reshard` of a unit", unit.reshard.value_or(Reshard{}),
                     Reshard::after_backward);
  const int places = options.mesh.empty() ? 1 : MeshShape{options.mesh}.size("pipe");
  if (unit.pipe < 0 || unit.pipe >= places) {
    throw ConfigError{fmt::format(
        "unit '{}': `pipe` is {}, and the mesh has {} place{} along pipe, counted from 0", name,
        unit.pipe, places, places == 1 ? "" : "s")};
  }
  if (!unit.reshard) { return; }
  if (unit.kind == UnitKind::root) {
    throw ConfigError{
        fmt::format("unit '{}': `reshard` has no effect on a root unit, which stays gathered until "
                    "its last use: leave it at its default",
                    name)};
  }
  if (!gathers(options.strategy)) {
    throw ConfigError{fmt::format(
        "unit '{}': `reshard` has no effect under {}, whose ranks hold whole parameters: leave it "
        "at its default, or choose zero3 or hybrid, which gather them",
        name, to_string(options.strategy))};
  }
  if (options.purpose == Purpose::inference) {
    throw ConfigError{
        fmt::format("unit '{}': `reshard` has no effect on a model for inference, because it has "
                    "no backward: leave it at its default",
                    name)};
  }
}

void check_mesh(const ModelOptions& options, int ranks) {
  if (options.mesh.empty()) { return; }
  const MeshShape mesh{options.mesh};
  require_ranks(mesh, ranks);
  if (options.shard_group != 0) {
    throw ConfigError{
        fmt::format("mesh {} and shard_group {} are both given: leave `shard_group` at 0, because "
                    "the mesh's dimension shard sets it",
                    mesh.to_string(), options.shard_group)};
  }
  if (options.strategy == Strategy::dp && mesh.data_ranks() < ranks) {
    throw ConfigError{
        fmt::format("mesh {}: under dp rank 0 keeps the whole model, so it cannot be split; leave "
                    "tensor and pipe at 1, or choose ddp or zero1 to zero3",
                    mesh.to_string())};
  }
  if (traits_of(options.strategy).optimizer == Holding::sharded || mesh.size("shard") == 1) {
    return;
  }
  throw ConfigError{
      fmt::format("mesh {}: {} shards nothing; put all ranks along replicate, or choose zero1, "
                  "zero2 or zero3",
                  mesh.to_string(), to_string(options.strategy))};
}

int ranks_of_each_machine(const std::vector<std::string>& machines) {
  const auto first_elsewhere = std::ranges::find_if(
      machines, [&](const std::string& machine) { return machine != machines.front(); });
  const std::ptrdiff_t ranks = first_elsewhere - machines.begin();
  if (std::ssize(machines) % ranks != 0) { return 0; }
  std::set<std::string> seen;
  for (std::size_t rank = 0; rank < machines.size(); ++rank) {
    const bool begins = static_cast<std::ptrdiff_t>(rank) % ranks == 0;
    if (begins ? !seen.insert(machines[rank]).second : machines[rank] != machines[rank - 1]) {
      return 0;
    }
  }
  return static_cast<int>(ranks);
}

int shard_group_of(const std::vector<std::string>& machines) {
  const int ranks = ranks_of_each_machine(machines);
  if (ranks > 0) { return ranks; }
  throw ConfigError{
      fmt::format("hybrid shards among the ranks of a machine, but the machines of the {} ranks "
                  "hold different numbers of them, or not contiguously: start equally many on "
                  "each, machine after machine, or set `shard_group`",
                  machines.size())};
}

}  // namespace engine

}  // namespace tessera
