#pragma once

#include <cstddef>

namespace tessera::comm {

/// Results of at least this many bytes are written past the caches. Measured on cores with 2 MiB of
/// second-level cache: writing and then reading 16 MiB is faster through the caches, 32 MiB is
/// even, and 64 MiB takes 0.83 of the time past them. Smaller copies are read from caches.
inline constexpr std::size_t kStreamFrom = std::size_t{32} << 20;

/// Copies `bytes`, without overlap, at any alignment. Where the processor can write whole cache
/// lines past its caches (AVX-512), it does so: the lines are not read first, and displace no
/// others. Elsewhere the same as memcpy: half lines (AVX2) were measured slower than it below 64
/// MiB.
///
/// Time: on return other threads see the copy as they do after memcpy.
void stream_copy(void* to, const void* from, std::size_t bytes) noexcept;

}  // namespace tessera::comm
