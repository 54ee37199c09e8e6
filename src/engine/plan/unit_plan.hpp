#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/view.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/engine/strategy.hpp"
#include "tessera/engine/unit.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera::engine {

/// A parameter, by unit and index in the unit's list.
struct ParameterRef {
  std::size_t unit = 0;
  std::size_t parameter = 0;
};

/// How long a sharded unit's parameters stay gathered.
enum class Residence : std::uint8_t {
  use,          ///< in a slot of the ring, around each use
  micro_batch,  ///< in a slot of its own, from the first use in a micro-batch or pass to the last
  update,       ///< in a slot of its own, from the first use after an update to the next
};

/// The ranges of a segment's elements that a rank keeps.
struct Owned {
  Range parameters;    ///< kept between steps
  Range updates;       ///< updated by the optimizer: gradients and optimizer state are cut alike
  bool normed = true;  ///< whether its squared norm counts: of equal copies only one rank's does
};

/// One unit as declared, and what `materialize` decides about it. Pure data: bytes and views follow
/// from it. A unit's segments lie end to end in one buffer and need no padding between them: every
/// segment's size is a multiple of 128 bytes.
struct UnitPlan {
  UnitPlan(std::string name_, UnitLayout layout_, UnitOptions options_);

  std::string name;
  UnitLayout layout;
  UnitOptions options;
  std::vector<ParameterInfo> infos;                   ///< by parameter
  std::vector<std::optional<ParameterRef>> alias_of;  ///< by parameter
  std::vector<std::size_t> owners;                    ///< units that own this one's aliases
  /// The places along `pipe` whose ranks have the unit, ascending: its own place and those of its
  /// aliases.
  std::vector<int> places;

  /// By parameter: trained, but left as it is for now (ShardedModel::freeze). It changes between
  /// steps.
  std::vector<bool> frozen;

  // Decided in `materialize`. The layout of a unit at another place has no segments.
  /// The holders of the unit's parameters, gradients and optimizer state: as the strategy says, but
  /// replicated where it is kept whole (ModelOptions::keep_whole).
  StrategyTraits traits = traits_of(Strategy::ddp);
  Residence residence = Residence::use;
  Offload offload =
      Offload::none;         ///< whether its masters and optimizer state are in the host pool
  int kept_shards = 1;       ///< shards that a rank keeps of each sharded segment
  std::vector<Owned> owned;  ///< by segment: what this rank keeps

  /// Whether the ranks at place `pipe` have the unit.
  [[nodiscard]] bool is_at(int pipe) const noexcept;
  [[nodiscard]] std::size_t segments() const noexcept { return layout.segments().size(); }

  /// Whole and per-rank bytes of all segments, as parameters and (if trainable) as gradients.
  [[nodiscard]] std::size_t parameter_bytes() const noexcept;
  [[nodiscard]] std::size_t parameter_shard_bytes() const noexcept;
  [[nodiscard]] std::size_t gradient_bytes() const noexcept;
  [[nodiscard]] std::size_t gradient_shard_bytes() const noexcept;
  /// Bytes of the copy in which gradients travel if the reduce dtype is narrower than theirs, else
  /// 0. Sums use fp32 or wider in any case, so a wider copy would gain nothing.
  [[nodiscard]] std::size_t wire_bytes() const noexcept;
  [[nodiscard]] bool trainable() const noexcept { return gradient_bytes() > 0; }
  /// Whether it owns a trained parameter that is not frozen for now.
  [[nodiscard]] bool trains_now() const noexcept;
  [[nodiscard]] bool is_root() const noexcept { return options.kind == UnitKind::root; }
  /// Whether masters and optimizer state are in the host pool between steps.
  [[nodiscard]] bool state_on_host() const noexcept { return offload != Offload::none; }
  /// Whether the host updates the unit, and so also holds its gradients.
  [[nodiscard]] bool updated_on_host() const noexcept { return offload == Offload::optimizer; }
  /// Whether its parameters are gathered around their use.
  [[nodiscard]] bool is_gathered() const noexcept { return traits.parameters == Holding::sharded; }
  /// Whether they are gathered to a slot of its own.
  [[nodiscard]] bool has_own_slot() const noexcept {
    return is_gathered() && residence != Residence::use;
  }

  /// Segment `s` in a buffer that holds the unit's whole parameters (or one rank's shards) from
  /// `base` on.
  [[nodiscard]] View parameter_view(std::size_t s, void* base) const noexcept;
  [[nodiscard]] View parameter_shard_view(std::size_t s, void* base) const noexcept;
  /// The same for gradients; empty for a frozen segment.
  [[nodiscard]] View gradient_view(std::size_t s, void* base) const noexcept;
  [[nodiscard]] View gradient_shard_view(std::size_t s, void* base) const noexcept;
  [[nodiscard]] View wire_view(std::size_t s, void* base) const noexcept;
};

using UnitPlans = std::vector<UnitPlan>;

/// Says which parameters are frozen for now, for the label of a step, which ranks compare: empty if
/// none are.
[[nodiscard]] std::string describe_frozen(const UnitPlans& plans);

/// `unit` and the units that own its aliases; the owners come first.
[[nodiscard]] std::vector<std::size_t> with_owners(const UnitPlans& plans, std::size_t unit);
/// `some` with the owners of its units, then all other units, each once: the update order.
[[nodiscard]] std::vector<std::size_t> with_the_rest(const UnitPlans& plans,
                                                     const std::vector<std::size_t>& some);

}  // namespace tessera::engine
