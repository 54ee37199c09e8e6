#pragma once

#include <chrono>
#include <exception>

namespace tessera::comm {

/// Grace period in which the failing rank reports first. Many launchers end the other ranks as soon
/// as it has ended.
inline constexpr std::chrono::seconds kCourtesy{3};

/// The exit status of a failure of communication.
inline constexpr int kCommStatus = 4;

/// The exit status for `error`: 2 for a user's mistake, 3 for memory, 4 for communication,
/// otherwise 1.
[[nodiscard]] int exit_status_of(const std::exception_ptr& error);

}  // namespace tessera::comm
