#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "tessera/engine/strategy.hpp"

namespace tessera {

enum class UnitKind : std::uint8_t {
  block,  ///< gathered into a ring slot around each use, or as Reshard says
  root,   ///< used outside the blocks: a slot of its own, kept from its first use to its last
};

enum class GradientInit : std::uint8_t {
  zeroed,    ///< views start at zero or hold earlier micro-batches: kernels add
  unzeroed,  ///< views hold anything: the trainer overwrites every element, in the only backward
             ///< scope of the unit; refused where micro-batches accumulate in the view, or a
             ///< second scope is opened
};

struct UnitOptions {
  UnitKind kind = UnitKind::block;
  GradientInit gradients = GradientInit::zeroed;
  /// If not given, ModelOptions::reshard. For blocks under zero3 and hybrid.
  std::optional<Reshard> reshard = {};
};

/// A registered unit: what add_unit returns, for the model that made it alone. Value type; one made
/// by itself is no unit.
class Unit {
 public:
  Unit() = default;
  /// In the order of declaration, from 0.
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
