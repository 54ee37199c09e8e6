#pragma once

#include <string>
#include <string_view>

#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Whether ranks can bring different texts. A simulated rank cannot: it stands for all ranks, often
/// a million (simulate_rank).
[[nodiscard]] inline bool can_disagree(World& world) noexcept {
  return world.device().computes();
}

/// *Collective.* Throws ContractError on every rank unless all ranks bring the same `text`; the
/// error names the first line that differs and the ranks. `what` says what is compared ("the order
/// of units"). Sends a hash, and the texts only if the hashes differ.
void require_agreement(World& world, std::string_view what, const std::string& text);

}  // namespace tessera::engine
