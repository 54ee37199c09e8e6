#pragma once

#include <cstddef>

namespace tessera {

/// Resident bytes of this process: touched pages, its own as well as files' (code, shared memory).
/// 0 if the system does not report them.
[[nodiscard]] std::size_t resident_bytes() noexcept;

}  // namespace tessera
