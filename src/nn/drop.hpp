#pragma once

#include <cstdint>
#include <optional>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/kernels/dropout.hpp"
#include "tessera/nn/dropout.hpp"
#include "tessera/nn/tensors.hpp"

namespace tessera::nn {

/// Where a layer drops elements. The embedding counts as part of layer 0.
enum class DropSite : std::uint32_t { attention, attention_output, mlp_output, embedding };
inline constexpr std::uint32_t kDropSites = 4;

/// The key of the masks of one site of a layer.
[[nodiscard]] kernels::DropoutKey key_of(const Dropout& dropout, DropSite site);

/// y = x with some elements dropped and the others scaled; [rows, columns], y may be x.
struct Dropped {
  ConstValues x;
  Values y;
  BatchShape shape;
  std::int64_t columns;
  std::optional<Range> own = {};  ///< the rows of `shape` that x and y have; empty: all
};
/// Runs on the stream of `scope`.
void drop(const Scope& scope, const Dropout& dropout, DropSite site, const Dropped& what);

}  // namespace tessera::nn
