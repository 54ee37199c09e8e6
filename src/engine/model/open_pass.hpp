#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/model/non_finite_search.hpp"
#include "engine/model/pass.hpp"
#include "tessera/engine/model_options.hpp"

namespace tessera::engine {

/// The passes of a step whose uses nobody counts: a program that learns from autograd which unit is
/// next opens any unit for reading or for gradients, in any order and any number of times.
/// Gradients are reduced when their scope closes, and added to those that the step has already.
///
/// No forward scope has to be followed by a backward scope, so that a pass which is dropped leaves
/// nothing behind.
class OpenPass : public Pass {
 public:
  /// `options` and `update_order` outlive it.
  OpenPass(const PassPlace& place, UseOrder& order, const ModelOptions& options,
           const std::vector<std::size_t>& update_order)
      : Pass{place, order}, options_{options}, update_order_{update_order} {}

  /// Opens a unit's parameters, for `kind` forward or backward. Throws ContractError if it is open.
  void open(UseKind kind, std::size_t unit);
  /// Reduces the gradients that the scope opened, if any.
  void close(UseKind kind, std::size_t unit);
  /// Makes room for the gradients of an open unit, unless they have it. Throws ContractError if
  /// open scopes hold all slots, or if the host updates the unit and has them already.
  void open_gradients(std::size_t unit);
  /// Ends a round: gives back parameters that are still held. Throws ContractError naming `call` if
  /// a scope is open.
  void end_round(const char* call);

  /// Whether this step has opened a scope.
  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// Whether this step has gradients.
  [[nodiscard]] bool has_gradients() const noexcept { return sums_ > 0; }
  /// Reduces what is not reduced yet; missing gradients become zeros. More may be added afterwards.
  void finish(const char* call);
  /// Drops the step's gradients.
  void discard();
  void next_step() noexcept {
    begun_ = in_round_ = false;
    sums_ = 0;
  }
  /// For the label of the step: ranks that have dropped different gradients do not agree in it.
  [[nodiscard]] std::string describe() const;

  /// Used from now on; null for none.
  void search_with(NonFiniteSearch* search) noexcept { search_ = search; }

 private:
  void begin();
  void close_gradients(std::size_t unit);

  const ModelOptions& options_;
  const std::vector<std::size_t>& update_order_;
  NonFiniteSearch* search_ = nullptr;
  bool begun_ = false;
  std::int64_t sums_ = 0;  // gradients of units that were completed in this step
  bool in_round_ = false;
  bool in_backward_ = false;  // of this round
};

}  // namespace tessera::engine
