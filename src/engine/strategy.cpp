#include "tessera/engine/strategy.hpp"

#include <array>
#include <string>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::array<std::pair<Strategy, std::string_view>, 6> kStrategies{{
    {Strategy::dp, "dp"},
    {Strategy::ddp, "ddp"},
    {Strategy::zero1, "zero1"},
    {Strategy::zero2, "zero2"},
    {Strategy::zero3, "zero3"},
    {Strategy::hybrid, "hybrid"},
}};

constexpr std::array<std::pair<AccumulateMode, std::string_view>, 3> kModes{{
    {AccumulateMode::automatic, "automatic"},
    {AccumulateMode::every, "every"},
    {AccumulateMode::deferred, "deferred"},
}};

}  // namespace

std::string_view to_string(Strategy strategy) noexcept {
  for (const auto& [value, name] : kStrategies) {
    if (value == strategy) { return name; }
  }
  return "?";
}

Strategy parse_strategy(std::string_view name) {
  if (name == "fsdp") { return Strategy::zero3; }
  for (const auto& [value, known] : kStrategies) {
    if (known == name) { return value; }
  }
  throw ConfigError{"unknown strategy '" + std::string{name} +
                    "': choose dp, ddp, zero1, zero2, zero3 (fsdp is zero3) or hybrid"};
}

const std::vector<Strategy>& all_strategies() {
  static const std::vector<Strategy> all{Strategy::dp,    Strategy::ddp,   Strategy::zero1,
                                         Strategy::zero2, Strategy::zero3, Strategy::hybrid};
  return all;
}

std::string_view to_string(AccumulateMode mode) noexcept {
  for (const auto& [value, name] : kModes) {
    if (value == mode) { return name; }
  }
  return "?";
}

AccumulateMode parse_accumulate_mode(std::string_view name) {
  for (const auto& [value, known] : kModes) {
    if (known == name) { return value; }
  }
  throw ConfigError{"unknown accumulate mode '" + std::string{name} +
                    "': choose every, deferred or automatic"};
}

std::string_view to_string(Reshard reshard) noexcept {
  return reshard == Reshard::after_forward ? "after-forward" : "after-backward";
}

Reshard parse_reshard(std::string_view name) {
  for (const Reshard reshard : {Reshard::after_forward, Reshard::after_backward}) {
    if (to_string(reshard) == name) { return reshard; }
  }
  throw ConfigError{"unknown resharding '" + std::string{name} +
                    "': choose after-forward or after-backward"};
}

std::string_view to_string(Offload offload) noexcept {
  switch (offload) {
    case Offload::optimizer:
      return "optimizer";
    case Offload::state:
      return "state";
    case Offload::none:
      break;
  }
  return "none";
}

StrategyTraits traits_of(Strategy strategy) noexcept {
  using enum Holding;
  switch (strategy) {
    case Strategy::dp:
      return {rank0, rank0, rank0};
    case Strategy::ddp:
      return {replicated, replicated, replicated};
    case Strategy::zero1:
      return {replicated, replicated, sharded};
    case Strategy::zero2:
      return {replicated, sharded, sharded};
    case Strategy::zero3:
    case Strategy::hybrid:
      return {sharded, sharded, sharded};
  }
  return {replicated, replicated, replicated};
}

MeshShape mesh_of(Strategy strategy, int ranks, int shard_group) {
  if (strategy == Strategy::hybrid) {
    expects(shard_group > 0 && ranks % shard_group == 0,
            "mesh_of: hybrid needs a shard_group that divides the number of ranks");
    return MeshShape{{{"replicate", ranks / shard_group}, {"shard", shard_group}}};
  }
  const bool shards = traits_of(strategy).optimizer == Holding::sharded;
  return MeshShape{{{shards ? "shard" : "replicate", ranks}}};
}

AccumulateMode resolve(AccumulateMode mode, Strategy strategy) noexcept {
  if (mode != AccumulateMode::automatic) { return mode; }
  return traits_of(strategy).gradients == Holding::sharded ? AccumulateMode::every
                                                           : AccumulateMode::deferred;
}

}  // namespace tessera
