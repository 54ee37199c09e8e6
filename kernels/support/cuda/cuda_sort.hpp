#pragma once

#include <algorithm>
#include <cstdint>

#include "device/stream_state.hpp"
#include "kernels/support/cuda/cuda_workspace.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels::cuda {

/// How many tokens can be sorted at once in the stream's workspace: a million in 32 MiB.
[[nodiscard]] inline std::int64_t most_sorted(Stream stream) noexcept {
  constexpr std::size_t token_bytes = 32;  // up to four arrays, and the sort's scratch memory
  const std::size_t most = stream.state()->workspace().bytes / token_bytes;
  return static_cast<std::int64_t>(std::clamp<std::size_t>(most, 1, std::size_t{1} << 30U));
}

/// Sorted tokens, in the stream's workspace.
struct SortedTokens {
  const std::int32_t* tokens;     ///< ascending
  const std::int32_t* positions;  ///< original positions, ascending among equal tokens
};

/// Sorts `elems` tokens, none of them negative, 1 <= elems <= most_sorted(stream). `workspace` has
/// given no array before, except perhaps that of the tokens.
[[nodiscard]] SortedTokens sort_by_token(const std::int32_t* tokens, std::int64_t elems,
                                         WorkspaceCut& workspace, Stream stream);

}  // namespace tessera::kernels::cuda
