#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

namespace tessera {

/// The end of an error about a thread that could not be started: what the system said, which limit
/// of this process was hit, and what to do.
[[nodiscard]] std::string no_thread_text(const std::system_error& error);

/// Starts a thread. Throws Error if there can be none: "`purpose` cannot be started: ...".
[[nodiscard]] std::thread start_thread(std::string_view purpose, std::function<void()> work);

/// "out of memory", and the limit of the address space if the process has one.
[[nodiscard]] std::string no_memory_text();

}  // namespace tessera
