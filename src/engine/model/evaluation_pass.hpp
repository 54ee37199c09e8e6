#pragma once

#include "engine/model/pass.hpp"

namespace tessera::engine {

/// One forward-only pass of an evaluation. Training state does not change.
class EvaluationPass : public Pass {
 public:
  /// `order`: the order of uses in evaluation passes; it may be unknown.
  EvaluationPass(const PassPlace& place, UseOrder& order) : Pass{place, order} {}

  /// `training`: the known order of training, used to predict the first pass.
  void begin(const UseOrder& training);
  void open(std::size_t unit);
  void close(std::size_t unit);
  /// Throws ContractError if a scope is open.
  void end_pass();
};

}  // namespace tessera::engine
