#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "tessera/base/view.hpp"
#include "tessera/device/stream.hpp"
#include "tessera/engine/tensor.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/kernels/write.hpp"

namespace tessera {

class ShardedModel;

namespace engine {
class Model;
enum class UseKind : std::uint8_t;
}  // namespace engine

/// An open use of a unit, forward or backward, during which its parameters are whole on this rank.
/// A layer's forward takes either kind, so that it can be run again in the backward scope
/// (recompute).
///
/// A scope ends at its closing brace or with `close`. It can be moved, for instance into a table of
/// open units in a program whose hooks open and close units. It must end before its model. A scope
/// that outlives its model keeps the model's memory until it ends, and the rank's body then ends
/// with a ContractError that names the unit.
///
/// Threads: one at a time, which may change. ShardedModel says which calls any thread may make.
class Scope {
 public:
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

  /// Returns the parameter called `name`. Throws ContractError if the scope has ended, or if no
  /// parameter has that name; it then lists the unit's parameters.
  [[nodiscard]] ConstTensor operator[](std::string_view name) const;
  /// Returns the stream on which the parameters are ready and kernels must run.
  [[nodiscard]] Stream stream() const;

  /// Returns whether the scope has neither ended nor been moved from.
  [[nodiscard]] bool is_open() const noexcept { return model_ != nullptr; }
  /// Ends the scope as its closing brace does, but throws the error of a failure. Throws
  /// ContractError if the scope is not open.
  void close();

  /// The micro-batch of a scope that is in none (ShardedModel::open_any).
  static constexpr int kAny = -1;

 private:
  friend class ShardedModel;
  friend class ForwardScope;
  friend class BackwardScope;
  friend class ReadScope;
  friend class OpenScope;
  Scope(std::shared_ptr<engine::Model> model, Unit unit, engine::UseKind kind,
        int micro_batch) noexcept;
  Scope(Scope&& other) noexcept;
  /// Ends this scope if it is open, and takes over the use of `other`, which is open too: if slots
  /// are few, call close() before `other` is opened.
  Scope& operator=(Scope&& other) noexcept;
  ~Scope();
  /// Throws ContractError if the scope is not open or the world has ended.
  [[nodiscard]] engine::Model& live() const;
  void end() noexcept;

  Unit unit_;
  int micro_batch_;
  std::shared_ptr<engine::Model> model_;  // while open
  engine::UseKind kind_;
  int exceptions_;  // in flight when it was opened
};

/// A forward use of a unit. Its end enqueues what follows, such as giving the parameters back. The
/// destructor never throws: a failure is kept and thrown by the next call on the model.
class ForwardScope : public Scope {
 public:
  /// Takes over the use of the other scope, which is then not open.
  ForwardScope(ForwardScope&&) noexcept = default;
  /// Ends this scope if it is open, and takes over the use of the other scope.
  ForwardScope& operator=(ForwardScope&&) noexcept = default;

  /// Names the unit's output, in device memory that stays valid on the scope's stream until the
  /// scope ends. The values are examined only in a step that may be the last of `max_skips` skipped
  /// steps: the error can then name the unit in which the first value that is not finite arose. In
  /// other steps the call does nothing. All ranks make the same calls.
  void watch(ConstView output) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// A use of a unit's parameters alone (ShardedModel::read). The destructor never throws: a failure
/// is kept and thrown by the next call on the model.
class ReadScope : public Scope {
 public:
  /// Takes over the use of the other scope, which is then not open.
  ReadScope(ReadScope&&) noexcept = default;
  /// Ends this scope if it is open, and takes over the use of the other scope.
  ReadScope& operator=(ReadScope&&) noexcept = default;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// A backward use of a unit, during which its gradients are whole on this rank, too. At its end the
/// gradients are reduced, or kept for a later reduction, depending on the strategy. The destructor
/// never throws: a failure is kept and thrown by the next call on the model.
class BackwardScope : public Scope {
 public:
  /// Takes over the use of the other scope, which is then not open.
  BackwardScope(BackwardScope&&) noexcept = default;
  /// Ends this scope if it is open, and takes over the use of the other scope.
  BackwardScope& operator=(BackwardScope&&) noexcept = default;

  /// Returns the gradient of this rank's loss for the parameter called `name`; kernels add to it
  /// (see GradientInit). Throws ContractError as operator[], and if the parameter is frozen
  /// (`has_grad` is false).
  [[nodiscard]] Tensor grad(std::string_view name) const;
  /// Returns how the next kernel must write the gradient of the parameter called `name`, all of it:
  /// overwrite for the first write since the gradients were opened, add for later ones. The trainer
  /// then calls `grad` for the address. The result is always add with GradientInit::zeroed, and
  /// always overwrite with GradientInit::unzeroed. Throws ContractError as `grad`, and if `grad`
  /// was not called after the last `write` of this parameter. If it is still missing at the end,
  /// close() throws ContractError, and the model cannot go on.
  [[nodiscard]] kernels::Write write(std::string_view name) const;
  /// Returns whether the parameter called `name` is trained: neither declared frozen nor frozen by
  /// ShardedModel::freeze. Throws ContractError as operator[] does.
  [[nodiscard]] bool has_grad(std::string_view name) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// A use of a unit that no other use has to match (ShardedModel::open_any). The destructor never
/// throws: a failure is kept and thrown by the next call on the model.
class OpenScope : public Scope {
 public:
  /// Takes over the use of the other scope, which is then not open.
  OpenScope(OpenScope&&) noexcept = default;
  /// Ends this scope if it is open, and takes over the use of the other scope.
  OpenScope& operator=(OpenScope&&) noexcept = default;

  /// Returns the gradient of this rank's loss for the parameter called `name`, to which kernels
  /// add. The first call opens the gradients of the unit, which are reduced when the scope ends.
  /// Throws ContractError as operator[], if the parameter is frozen, and if the gradients need a
  /// slot and other open scopes hold all of them.
  [[nodiscard]] Tensor grad(std::string_view name) const;

 private:
  friend class ShardedModel;
  using Scope::Scope;
};

/// An evaluation of a model, as long as it lives: all scopes are forward scopes, in any number of
/// passes. It does not affect the training: gradients, the bits of later steps and the memory peak
/// stay the same.
///
///     auto evaluation = model.evaluate();
///     for (batch of the validation set) { (forward scopes); evaluation.end_pass(); }
///
/// Order:   every rank opens the same units in the same order. Units are gathered ahead as in
///          training. The first pass expects the order of the training, if it is known, and each
///          later pass the order of the pass before. The order may change.
/// Memory:  an evaluation uses the slots of the training. Parameters that are kept during a pass
///          (root units) are given back at its end.
/// Errors:  the destructor never throws: a failure is kept and thrown by the next call on the
///          model, which must end after this object (as after a Scope).
class Evaluation {
 public:
  Evaluation(const Evaluation&) = delete;
  Evaluation& operator=(const Evaluation&) = delete;
  /// Ends the last pass and the evaluation.
  ~Evaluation();

  /// Ends a pass; the destructor ends the last one. Throws ContractError if a scope is open.
  void end_pass();

 private:
  friend class ShardedModel;
  explicit Evaluation(std::shared_ptr<engine::Model> model) noexcept;

  std::shared_ptr<engine::Model> model_;
};

}  // namespace tessera
