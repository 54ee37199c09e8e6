#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "base/enumerator.hpp"
#include "base/member.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera {

template <>
inline constexpr Strategy kLast<Strategy> = Strategy::hybrid;
template <>
inline constexpr Checks kLast<Checks> = Checks::memory;
template <>
inline constexpr Purpose kLast<Purpose> = Purpose::inference;
template <>
inline constexpr MasterWeights kLast<MasterWeights> = MasterWeights::remainder;
template <>
inline constexpr LossScaleMode kLast<LossScaleMode> = LossScaleMode::fixed;
template <>
inline constexpr Reshard kLast<Reshard> = Reshard::after_backward;
template <>
inline constexpr AccumulateMode kLast<AccumulateMode> = AccumulateMode::deferred;
template <>
inline constexpr KeepWhole kLast<KeepWhole> = KeepWhole::where_smaller;
template <>
inline constexpr Offload kLast<Offload> = Offload::state;

}  // namespace tessera

namespace tessera::engine {

/// What an option needs to have an effect. Where that is missing, another value than the default is
/// refused.
enum class Needs : std::uint8_t {
  nothing,           ///< or its comment says where it is ignored
  gradients,         ///< a model that is trained
  gathers,           ///< a strategy that gathers parameters
  backward_gathers,  ///< both
};

/// An option of a model, as messages quote it, and the member that holds it.
template <auto... Path>
struct ModelOption : Member<Path...> {
  std::string_view name;
  Needs needs = Needs::nothing;
};

template <auto... Path>
constexpr ModelOption<Path...> option(std::string_view name, Needs needs = Needs::nothing) {
  return {{}, name, needs};
}

/// All options of a model, in the order of the struct. The rules, the comparison between ranks, and
/// what a checkpoint says of the job that wrote it go through this list.
inline constexpr std::tuple kModelOptions{
    option<&ModelOptions::strategy>("strategy"),
    option<&ModelOptions::shard_group>("shard_group"),
    option<&ModelOptions::compute>("compute"),
    option<&ModelOptions::accumulate>("accumulate", Needs::gradients),
    option<&ModelOptions::checks>("checks", Needs::gradients),
    option<&ModelOptions::purpose>("purpose"),
    option<&ModelOptions::mesh>("mesh"),
    option<&ModelOptions::master_weights>("master_weights", Needs::gradients),
    option<&ModelOptions::gradient>("gradient", Needs::gradients),
    option<&ModelOptions::reduce>("reduce", Needs::gradients),
    option<&ModelOptions::loss_scaling>("loss_scaling", Needs::gradients),
    option<&ModelOptions::max_skips>("max_skips", Needs::gradients),
    option<&ModelOptions::prefetch>("prefetch"),
    option<&ModelOptions::reshard>("reshard", Needs::backward_gathers),
    option<&ModelOptions::persist_elems>("persist_elems", Needs::gathers),
    option<&ModelOptions::accumulate_mode>("accumulate_mode", Needs::gradients),
    option<&ModelOptions::bucket_bytes>("bucket_bytes"),
    option<&ModelOptions::offload>("offload", Needs::gradients),
    option<&ModelOptions::offload_keep>("offload_keep"),
    option<&ModelOptions::align_elems>("align_elems"),
    option<&ModelOptions::keep_whole>("keep_whole"),
    option<&ModelOptions::tuning, &ModelTuning::prefetch_backward>("tuning.prefetch_backward",
                                                                   Needs::backward_gathers),
    option<&ModelOptions::tuning, &ModelTuning::first_bucket_bytes>("tuning.first_bucket_bytes"),
    option<&ModelOptions::tuning, &ModelTuning::gradient_slots>("tuning.gradient_slots"),
};

/// Calls `visit(option)` for every option of a model.
template <class Visit>
void for_each_model_option(const Visit& visit) {
  std::apply([&](const auto&... options) { (visit(options), ...); }, kModelOptions);
}

/// `options` with each automatic value replaced by what it stands for.
[[nodiscard]] ModelOptions settled(ModelOptions options);

/// The value of an option as text: "zero3", "0.25", "pipe=2,shard=4"; "none" for no value.
template <class Value>
[[nodiscard]] std::string text_of(const Value& value) {
  if constexpr (std::is_enum_v<Value>) {
    return std::string{to_string(value)};
  } else {
    return fmt::format("{}", value);
  }
}
template <class Value>
[[nodiscard]] std::string text_of(const std::optional<Value>& value) {
  return value ? text_of(*value) : "none";
}
[[nodiscard]] std::string text_of(Purpose purpose);
[[nodiscard]] std::string text_of(const std::vector<MeshDim>& mesh);
/// For a mode that is not automatic.
[[nodiscard]] std::string text_of(const LossScaling& scaling);

}  // namespace tessera::engine
