#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/base/view.hpp"
#include "tessera/engine/init.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/shard/layout.hpp"

namespace tessera::engine {

/// A parameter by unit and position in the unit's list.
struct ParameterRef {
  std::size_t unit = 0;
  std::size_t parameter = 0;
};

/// How long a unit's gathered parameters stay, where they are sharded.
enum class Residence : std::uint8_t {
  use,          ///< in a slot of the ring, around each use
  micro_batch,  ///< in a slot of its own, from the first use in a micro-batch or pass to the last
  update,       ///< in a slot of its own, from the first use after an update to the next
};

/// One registered unit: what it declares, and how its segments lie end to end in one buffer.
/// Segments need no padding between them: every segment's size is a multiple of 128 bytes.
struct UnitState {
  UnitState(std::string name_, UnitLayout layout_, UnitOptions options_);

  std::string name;
  UnitLayout layout;
  UnitOptions options;
  std::vector<ParameterInfo> infos;                   ///< by parameter
  std::vector<std::optional<ParameterRef>> alias_of;  ///< by parameter
  std::vector<std::size_t> owners;                    ///< units that own this one's aliases

  /// Shards that a rank keeps of each segment, where they are sharded: see Sharding.
  int kept_shards = 1;

  /// Whole and per-rank bytes of all segments, as parameters and (trainable ones) as gradients.
  [[nodiscard]] std::size_t parameter_bytes() const noexcept;
  [[nodiscard]] std::size_t parameter_shard_bytes() const noexcept;
  [[nodiscard]] std::size_t gradient_bytes() const noexcept;
  [[nodiscard]] std::size_t gradient_shard_bytes() const noexcept;
  /// Of the copy in which gradients travel where the reduce dtype is narrower than their own, else
  /// 0: sums are made in fp32 or wider in any case, so that a wider copy would gain nothing.
  [[nodiscard]] std::size_t wire_bytes() const noexcept;
  [[nodiscard]] bool trainable() const noexcept { return gradient_bytes() > 0; }
  [[nodiscard]] bool is_root() const noexcept { return options.kind == UnitKind::root; }
  /// Whether its gathered parameters come to a slot that is no other unit's.
  [[nodiscard]] bool has_own_slot() const noexcept { return residence != Residence::use; }

  /// Segment `s` in a buffer that holds the unit's whole parameters (or one rank's shards of them)
  /// from `base` on.
  [[nodiscard]] View parameter_view(std::size_t s, void* base) const noexcept;
  [[nodiscard]] View parameter_shard_view(std::size_t s, void* base) const noexcept;
  /// The same for gradients; empty for a frozen segment.
  [[nodiscard]] View gradient_view(std::size_t s, void* base) const noexcept;
  [[nodiscard]] View gradient_shard_view(std::size_t s, void* base) const noexcept;
  [[nodiscard]] View wire_view(std::size_t s, void* base) const noexcept;

  Residence residence = Residence::use;  ///< decided in `materialize`
  bool offloaded = false;  ///< its masters and optimizer state are in the host pool; as residence

  // State of the current micro-batch.
  bool gathered_ahead = false;  ///< and not opened since
  int open_scopes = 0;
  int forward_uses = 0;
  int backward_uses = 0;
};

}  // namespace tessera::engine
