#pragma once

#include <optional>
#include <string>

#include "tessera/engine/model_options.hpp"
#include "tessera/world/world.hpp"

namespace tessera::engine {

/// The ranks that give their loss to a step: all data ranks at one place along `pipe`, or none.
/// Otherwise the reported mean would be of some ranks' losses only, or of two places' together.
class LossGivers {
 public:
  LossGivers(World& world, const ModelOptions& options) : world_{world}, options_{options} {}

  /// In a later step than the first it throws ContractError if this rank gives a loss and did not
  /// before, or the reverse, on a mesh that divides the model: other ranks would not notice.
  /// Throws it too if the step `counts` tokens (LossCount) and no rank gives a loss.
  /// Returns what the label of the step's batch, which ranks compare, says of a change; usually
  /// nothing.
  [[nodiscard]] std::string check(bool gives, bool counts);
  /// *Collective* in the first step, after its batch: a rank that makes another call meets this one
  /// there, where labels are compared. Throws ContractError that names the ranks, on all of them,
  /// unless they give a loss as above.
  void compare();
  /// The next step is the first.
  void forget() noexcept {
    gave_.reset();
    compared_ = false;
  }

 private:
  World& world_;
  const ModelOptions& options_;
  std::optional<bool> gave_;
  bool counts_ = false;  // whether the step does
  bool any_ = false;     // whether any rank gives a loss; known once they have compared
  bool compared_ = false;
};

}  // namespace tessera::engine
