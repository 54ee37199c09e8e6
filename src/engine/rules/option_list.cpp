#include "engine/rules/option_list.hpp"

#include <fmt/format.h>

namespace tessera::engine {

ModelOptions settled(ModelOptions options) {
  options.tuning.prefetch_backward = options.tuning.prefetch_backward.value_or(options.prefetch);
  options.accumulate_mode = resolve(options.accumulate_mode, options.strategy);
  options.keep_whole = resolve(options.keep_whole);
  options.loss_scaling.mode = resolve(options.loss_scaling.mode, options.compute, options.gradient);
  return options;
}

std::string text_of(Purpose purpose) {
  return purpose == Purpose::training ? "training" : "inference";
}

std::string text_of(const std::vector<MeshDim>& mesh) {
  std::string text;
  for (const MeshDim& dim : mesh) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", dim.name, dim.size);
  }
  return text.empty() ? "none" : text;
}

std::string text_of(const LossScaling& scaling) {
  return tessera::describe(scaling, DType::fp32, DType::fp32);
}

}  // namespace tessera::engine
