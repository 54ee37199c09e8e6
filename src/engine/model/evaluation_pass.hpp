#pragma once

#include "engine/model/pass.hpp"

namespace tessera::engine {

/// Passes of an evaluation: units are opened forward, and nothing of the training changes.
class EvaluationPass : public Pass {
 public:
  /// `order`: of the passes; it may be unknown.
  EvaluationPass(const PassPlace& place, UseOrder& order) : Pass{place, order} {}

  /// `training`: what is known of the order in training, for the first pass.
  void begin(const UseOrder& training);
  void open(std::size_t unit);
  void close(std::size_t unit);
  /// ContractError if a scope is open.
  void end_pass();
};

}  // namespace tessera::engine
