#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tessera/base/view.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/engine/tensor.hpp"
#include "tessera/engine/unit.hpp"

namespace tessera {

class ShardedModel;

namespace engine {
class Model;
enum class UseKind : std::uint8_t;
}  // namespace engine

/// An open use of a unit, forward or backward: its parameters are whole on this rank. A layer's
/// forward takes either kind, so that it can be run once more in the backward scope (recompute).
///
/// A scope ends at its brace or with `close`, and can be moved, into a table of open units for
/// instance, where a program's hooks open and close units. It ends before its model: one that does
/// not keeps the model's memory until it does, and the rank's body ends with a ContractError that
/// names the unit.
///
/// Threads: one at a time, not always the same; ShardedModel says which calls may be made there.
class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// The parameter called `name`. ContractError that lists the unit's parameters if it has none of
  /// that name, or if the scope has ended.
  [[nodiscard]] ConstTensor operator[](std::string_view name) const;
  /// The stream on which the parameters are ready and on which kernels must run.
  [[nodiscard]] Stream stream() const;

  /// Whether the scope has neither ended nor been moved from.
  [[nodiscard]] bool is_open() const noexcept { return model_ != nullptr; }
  /// Ends the scope, as the brace does, and throws what went wrong. ContractError if it is not
  /// open.
  void close();

 protected:
  Scope(std::shared_ptr<engine::Model> model, Unit unit, engine::UseKind kind,
        int micro_batch) noexcept;
  Scope(Scope&& other) noexcept;
  /// Ends this scope first if it is open; what goes wrong there is thrown by the model's next call.
  Scope& operator=(Scope&& other) noexcept;
  ~Scope();
  /// ContractError if the scope is not open, or if the world has ended.
  [[nodiscard]] engine::Model& live() const;

  Unit unit_;
  int micro_batch_;

 private:
  void end() noexcept;

  std::shared_ptr<engine::Model> model_;  // while open
  engine::UseKind kind_;
  int exceptions_;  // in flight when it was opened
};

/// While it is open, a unit's parameters are whole on this rank. What follows its end is enqueued
/// there. At the brace it never throws; a failure is kept and thrown by the next call on the model.
class ForwardScope : public Scope {
 public:
  ForwardScope(ForwardScope&&) noexcept = default;
  ForwardScope& operator=(ForwardScope&&) noexcept = default;

  /// Tells what the unit has computed, valid on the scope's stream until the scope ends. It is
  /// looked at only in a step that may be the last of `max_skips` skipped ones, so that the unit
  /// can be named in which the first value that is not finite arose; else this does nothing. All
  /// ranks watch the same.
  void watch(ConstView output) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// While it is open, a unit's parameters and its full gradients are whole on this rank; at its end
/// the gradients go on their way to where the strategy keeps them.
class BackwardScope : public Scope {
 public:
  BackwardScope(BackwardScope&&) noexcept = default;
  BackwardScope& operator=(BackwardScope&&) noexcept = default;

  /// Gradient of this rank's loss; kernels add into it (see GradientInit). ContractError if the
  /// parameter is frozen (ask `has_grad`).
  [[nodiscard]] Tensor grad(std::string_view name) const;
  [[nodiscard]] bool has_grad(std::string_view name) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// While it lives, the model is evaluated: scopes are forward ones, in as many passes as wanted,
/// and nothing of the training changes: no gradient, no bit of a later step, no byte of the peak.
///
///   auto evaluation = model.evaluate();
///   for (batch of the validation set) { (forward scopes); evaluation.end_pass(); }
///
/// Order:   every rank opens the same units in the same order. Units are gathered ahead as in
///          training, in the order of the training or of the pass before; the order may change.
/// Memory:  the slots of the training; what is kept over a pass (root units) is given back at its
///          end.
/// Ends at the brace and never throws there: a failure is kept and thrown by the next call on the
/// model, which ends after this object (as for a Scope).
class Evaluation {
 public:
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  ~Evaluation();

  /// Ends a pass, as the object's end does too. ContractError if a scope is open.
  void end_pass();

 private:
  friend class ShardedModel;
  explicit Evaluation(std::shared_ptr<engine::Model> model) noexcept;

  std::shared_ptr<engine::Model> model_;
};

}  // namespace tessera
