#pragma once

#include <chrono>
#include <exception>

namespace tessera {

/// How long ranks keep silent after another's failure: that rank has the word, and the launcher
/// ends the others when it has ended, if it does.
inline constexpr std::chrono::seconds kCourtesy{3};

/// The exit status of a failure of communication.
inline constexpr int kCommStatus = 4;

/// The exit status that `error` deserves: 2 for a mistake of the user's, 3 for memory, 4 for
/// communication, otherwise 1.
[[nodiscard]] int exit_status_of(const std::exception_ptr& error);

}  // namespace tessera
