#pragma once

#include <algorithm>
#include <cstdint>

#include "tessera/base/math.hpp"
#include "tessera/base/view.hpp"

namespace tessera::comm {

/// The part of `data` that rank `rank` reduces for all ranks. If `data` starts on a cache line so
/// do all parts, so that no two ranks write one line; the last parts may be empty.
[[nodiscard]] inline View piece(View data, int rank, int ranks) noexcept {
  constexpr std::int64_t kPieceElems = 64;
  const std::int64_t each = round_up(ceil_div<std::int64_t>(data.elems, ranks), kPieceElems);
  const std::int64_t begin = std::min(rank * each, data.elems);
  return data.slice(begin, std::min(each, data.elems - begin));
}

}  // namespace tessera::comm
