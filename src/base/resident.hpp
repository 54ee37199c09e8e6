#pragma once

#include <cstddef>

namespace tessera {

/// Bytes of this process that the system holds in memory at the moment: pages that have been
/// touched, of its own and of files (code, shared memory) alike. 0 where the system does not tell.
[[nodiscard]] std::size_t resident_bytes() noexcept;

}  // namespace tessera
