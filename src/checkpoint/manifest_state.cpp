#include "checkpoint/manifest_state.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

template <class Number>
Number number_in(const Manifest& manifest, const std::string& path, const std::string& name) {
  const auto found = manifest.state.find(name);
  const std::string text = found == manifest.state.end() ? "" : found->second;
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || error != std::errc{} || end != text.data() + text.size() || number < 0) {
    throw FormatError{
        fmt::format("{}: state: '{}' is '{}', which no step can produce; the manifest is damaged",
                    path, name, text)};
  }
  return number;
}

/// The counters as they stand in the manifest at `path`.
engine::StateCounters written_counters(const std::string& path, const Manifest& manifest) {
  const auto whole = [&](const char* name) {
    return number_in<std::int64_t>(manifest, path, name);
  };
  const auto loss_scale = number_in<float>(manifest, path, "loss_scale");
  if (!std::isfinite(loss_scale) || loss_scale == 0.0F) {
    throw FormatError{fmt::format(
        "{}: state: 'loss_scale' is {}, which is not a valid scale; the manifest is damaged", path,
        loss_scale)};
  }
  return {.steps = whole("steps"),
          .updates = whole("updates"),
          .loss_scale = loss_scale,
          .good_steps = whole("good_steps"),
          .skipped_in_a_row = whole("skipped_in_a_row"),
          .skipped = whole("skipped")};
}

std::string loss_scaling_of(const ModelOptions& options) {
  switch (resolve(options.loss_scaling.mode, options.compute, options.gradient)) {
    case LossScaleMode::dynamic:
      return "dynamic";
    case LossScaleMode::fixed:
      return "fixed";
    default:
      return "off";
  }
}

}  // namespace

std::string moments_of(const engine::TrainingState& state) {
  for (const engine::StateTensorInfo& info : state.tensors()) {
    if (info.kind != engine::StateKind::moment) { continue; }
    if (info.format == engine::StateFormat::u8) { return "int8"; }
    return info.format == engine::StateFormat::bf16 ? "bf16" : "fp32";
  }
  return "none";
}

std::map<std::string, std::string> manifest_state(const engine::TrainingState& state,
                                                  const ModelOptions& options,
                                                  const engine::StateCounters& counters) {
  return {{"steps", fmt::to_string(counters.steps)},
          {"updates", fmt::to_string(counters.updates)},
          {"loss_scale", fmt::to_string(counters.loss_scale)},
          {"loss_scaling", loss_scaling_of(options)},
          {"good_steps", fmt::to_string(counters.good_steps)},
          {"skipped_in_a_row", fmt::to_string(counters.skipped_in_a_row)},
          {"skipped", fmt::to_string(counters.skipped)},
          {"optimizer", state.optimizer_name()},
          {"moments", moments_of(state)},
          {"master_weights", std::string{to_string(options.master_weights)}}};
}

void check_counters(const std::string& path, const Manifest& manifest) {
  (void)written_counters(path, manifest);
}

engine::StateCounters counters_of(const Manifest& manifest, const ModelOptions& options) {
  engine::StateCounters counters = written_counters(std::string{kManifestName}, manifest);
  // A dynamic scale continues. Any other is the model's own.
  const std::string own = loss_scaling_of(options);
  const auto theirs = manifest.state.find("loss_scaling");
  const bool same = theirs != manifest.state.end() && theirs->second == own;
  if (!same || own != "dynamic") {
    counters.loss_scale = first_loss_scale(options.loss_scaling, options.compute, options.gradient);
  }
  if (!same) { counters.good_steps = 0; }
  return counters;
}

}  // namespace tessera::checkpoint
