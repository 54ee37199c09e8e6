#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/engine/step_report.hpp"

namespace tessera {

/// Whether units may be kept whole although the strategy shards them.
enum class KeepWhole : std::uint8_t {
  automatic,      ///< `where_smaller` for a libtorch module, and `never` for other models.
  never,          ///< Every unit is sharded: a rank holds what the table of Strategy says.
  where_smaller,  ///< A unit is kept whole where its shard and its slot would take more memory.
};

/// Returns "automatic", "never" or "where-smaller".
[[nodiscard]] std::string_view to_string(KeepWhole keep) noexcept;
/// Returns `keep`, with `automatic` resolved for a model that is no libtorch module.
[[nodiscard]] constexpr KeepWhole resolve(KeepWhole keep) noexcept {
  return keep == KeepWhole::automatic ? KeepWhole::never : keep;
}

/// Units whose parameters, or gradients, this rank keeps whole although the strategy shards them.
struct WholeUnits {
  StateTensor what = StateTensor::parameters;  ///< their parameters or their gradients
  std::vector<std::string> units;              ///< names, in the order of declaration
  std::size_t whole_bytes = 0;                 ///< what this rank keeps of them
  std::size_t sharded_bytes = 0;               ///< what their shards and slots would take
};

/// Returns one line, such as
/// "unit (root) is kept whole: 10.0 MiB whole, 12.5 MiB sharded and gathered".
[[nodiscard]] std::string describe(const WholeUnits& whole);

}  // namespace tessera
