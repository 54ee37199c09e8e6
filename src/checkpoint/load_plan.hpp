#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera::checkpoint {

/// An array of a checkpoint that fills an array of the model.
struct TensorSource {
  std::size_t tensor = 0;  ///< index in Manifest::tensors
  /// Whether bytes read for it here are summed. One of all arrays that read it sums, so that the
  /// job sums each byte once.
  bool summed = false;
};

/// How one array of the model is filled.
struct TensorRecipe {
  enum class How : std::uint8_t {
    keep,     ///< stays as it is
    zeros,    ///< with zeros
    copy,     ///< bytes as they are
    convert,  ///< converted through fp32
  };
  How how = How::keep;
  TensorSource from = {};
  /// What completes `from` to fp32 values: the remainders of a bf16 weight, or the scales of a
  /// quantised moment.
  std::optional<TensorSource> beside = {};

  /// Whether it is filled from the checkpoint.
  [[nodiscard]] bool reads() const noexcept { return how == How::copy || how == How::convert; }
};

/// What a model loads from a checkpoint. It follows from the manifest, the model and the options,
/// so it is the same on all ranks.
///
/// Errors: ConfigError if something does not fit.
struct LoadPlan {
  LoadPlan(const engine::TrainingState& state, const Manifest& manifest, const LoadOptions& options,
           const std::string& path);

  std::vector<TensorRecipe> recipes;  ///< by tensor of the state
  std::vector<std::string> missing;   ///< as in LoadReport
  std::vector<std::string> unexpected;
};

}  // namespace tessera::checkpoint
