#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tessera/engine/strategy.hpp"

namespace tessera {

/// How long a unit's parameters stay gathered, under strategies that gather.
enum class UnitKind : std::uint8_t {
  block,  ///< The unit has a slot of the ring around each use, or as Reshard says.
  root,  ///< The unit is used outside the blocks: it has a slot of its own, from its first use in a
         ///< micro-batch or pass to its last.
};

/// The contents of a unit's gradients when a backward scope opens.
enum class GradientInit : std::uint8_t {
  zeroed,    ///< Zeros or the sum so far: kernels add to them.
  unzeroed,  ///< Undefined values: the trainer overwrites every element. ConfigError where
             ///< micro-batches accumulate in them, ContractError if the unit has a second backward
             ///< scope in a micro-batch.
  first_write,  ///< Undefined values at first. The trainer calls BackwardScope::write before each
                ///< use: the first kernel overwrites the gradient, later kernels add to it. A
                ///< gradient is filled with zeros when it is taken without `write`, or at the end
                ///< of the unit's last backward scope if it is never taken. It saves a fill and a
                ///< read.
};

/// How a unit is kept. The defaults fit a repeated layer of a model.
struct UnitOptions {
  /// The kind of the unit. A unit that owns a tied parameter always becomes a root. It has no
  /// effect where nothing is gathered.
  UnitKind kind = UnitKind::block;
  /// Whether backward adds to the unit's gradients or overwrites them. It changes no value.
  GradientInit gradients = GradientInit::zeroed;
  /// When the unit gives its gathered parameters back. If it is not given, ModelOptions::reshard
  /// applies. ConfigError from add_unit for a root unit, for inference, and where nothing is
  /// gathered.
  std::optional<Reshard> reshard = {};
  /// The place along the mesh's dimension `pipe` of the ranks that have the unit, from 0. All ranks
  /// declare all units; ranks at other places keep nothing of it, and must not open it.
  ///
  /// A unit that owns tied parameters is also kept by the ranks of its aliases' units. `step` adds
  /// the gradients of those places before it averages, so that all of them make the same update.
  int pipe = 0;
};

/// A handle to a declared unit, for calls on the model whose add_unit returned it. It is a value
/// and owns nothing. A default-constructed handle belongs to no model: every call refuses it with
/// ContractError.
class Unit {
 public:
  /// A handle that belongs to no model.
  Unit() = default;
  /// Returns the unit's index in the order of declaration, from 0.
  [[nodiscard]] std::size_t index() const noexcept { return index_; }
  friend bool operator==(const Unit&, const Unit&) = default;

 private:
  friend class ShardedModel;
  Unit(std::size_t index, std::uint32_t model) noexcept
      : index_{static_cast<std::uint32_t>(index)}, model_{model} {}

  std::uint32_t index_ = 0;
  std::uint32_t model_ = 0;  // the model's number in its process, from 1
};

}  // namespace tessera
