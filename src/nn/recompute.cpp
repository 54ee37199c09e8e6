#include "tessera/nn/recompute.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::nn {

Recompute Recompute::every(std::int64_t k) {
  expects(k >= 1, "Recompute::every: k must be at least 1");
  Recompute result;
  result.every_ = k;
  return result;
}

Recompute Recompute::chosen(std::function<bool(std::int64_t)> layer) {
  expects(layer != nullptr, "Recompute::chosen: the choice is empty");
  Recompute result;
  result.chosen_ = std::move(layer);
  return result;
}

Recompute Recompute::gelu() {
  Recompute result;
  result.gelu_ = true;
  return result;
}

Recompute Recompute::swiglu() {
  Recompute result;
  result.swiglu_ = true;
  return result;
}

Recompute Recompute::layer_norm() {
  Recompute result;
  result.layer_norm_ = true;
  return result;
}

Recompute Recompute::rms_norm() {
  Recompute result;
  result.rms_norm_ = true;
  return result;
}

void Recompute::validate(const DecoderConfig& config) const {
  const auto require = [](bool named, bool has, std::string_view name, std::string_view other) {
    if (!named || has) { return; }
    throw ConfigError(
        fmt::format("recompute {}: the layers of this model have none; give {}", name, other));
  };
  const bool layer_norms = config.norm == NormKind::layer_norm;
  require(gelu_, !config.gated(), "gelu", "swiglu");
  require(swiglu_, config.gated(), "swiglu", "gelu");
  require(layer_norm_, layer_norms, "layer-norm", "rms-norm");
  require(rms_norm_, !layer_norms, "rms-norm", "layer-norm");
}

Recompute Recompute::joined(const Recompute& other) const {
  expects(!chooses_layers() || !other.chooses_layers(),
          "Recompute: only one side of | may choose layers");
  Recompute result = chooses_layers() ? *this : other;
  result.gelu_ = gelu_ || other.gelu_;
  result.swiglu_ = swiglu_ || other.swiglu_;
  result.layer_norm_ = layer_norm_ || other.layer_norm_;
  result.rms_norm_ = rms_norm_ || other.rms_norm_;
  return result;
}

bool Recompute::applies_to(std::int64_t layer) const {
  if (chosen_) { return chosen_(layer); }
  return every_ > 0 && layer % every_ == 0;
}

std::string Recompute::describe() const {
  std::vector<std::string> words;
  if (chosen_) { words.emplace_back("chosen"); }
  if (every_ > 0) { words.push_back(every_ == 1 ? "block" : fmt::format("every:{}", every_)); }
  if (gelu_) { words.emplace_back("gelu"); }
  if (swiglu_) { words.emplace_back("swiglu"); }
  if (layer_norm_) { words.emplace_back("layer-norm"); }
  if (rms_norm_) { words.emplace_back("rms-norm"); }
  return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ","));
}

}  // namespace tessera::nn
