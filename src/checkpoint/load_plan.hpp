#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "engine/model/training_state.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {

/// An array of a checkpoint from which an array of the model is filled.
struct TensorSource {
  std::size_t tensor = 0;  ///< index in Manifest::tensors
  /// Whether what is read of it here is summed: of all arrays that read it one does, so that the
  /// job sums each byte once.
  bool summed = false;
};

/// How one array of the model is filled.
struct TensorRecipe {
  enum class How : std::uint8_t {
    keep,     ///< it stays as it is
    zeros,    ///< with zeros
    copy,     ///< byte by byte
    convert,  ///< through fp32
  };
  How how = How::keep;
  TensorSource from = {};
  /// What completes `from` to fp32 values: the remainders of a bf16 weight, the scales of a
  /// quantised moment.
  std::optional<TensorSource> beside = {};
};

/// What a model takes of a checkpoint. It follows from the manifest, the model and the options, so
/// that it is the same on all ranks.
///
/// Errors: ConfigError for what does not fit.
struct LoadPlan {
  LoadPlan(const engine::TrainingState& state, const Manifest& manifest, const LoadOptions& options,
           const std::string& path);

  std::vector<TensorRecipe> recipes;  ///< by tensor of the state
  std::vector<std::string> missing;   ///< as LoadReport
  std::vector<std::string> unexpected;
};

}  // namespace tessera
