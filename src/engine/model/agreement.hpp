#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "tessera/world/world.hpp"

namespace tessera::engine {

/// Whether ranks can bring different texts. A simulated rank cannot: it stands for all ranks, often
/// a million (simulate_rank).
[[nodiscard]] inline bool can_disagree(World& world) noexcept {
  return world.device().computes();
}

/// A text, each line of which is made when it is needed.
struct Lines {
  std::size_t count = 0;
  std::function<std::string(std::size_t at)> line;
};

/// *Collective.* Throws ContractError on every rank unless all ranks bring the same lines. The
/// error names the first line that differs and the ranks. `what` says what is compared ("the order
/// of units"). Ranks exchange hashes, and the first line that differs.
void require_agreement(World& world, std::string_view what, const Lines& lines);
/// *Collective.* Compares the lines of `text`.
void require_agreement(World& world, std::string_view what, const std::string& text);

}  // namespace tessera::engine
