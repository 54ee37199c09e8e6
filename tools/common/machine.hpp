#pragma once

#include <cstddef>
#include <string>

namespace tessera::tools {

/// The processor's name, as reported by the operating system.
[[nodiscard]] std::string processor_name();
/// The name of the machine, or of its container.
[[nodiscard]] std::string machine_name();
/// Processors that this process may use.
[[nodiscard]] int usable_cores();
/// Bytes of memory that this process may use: the machine's, or the lowest limit of its cgroups.
[[nodiscard]] std::size_t usable_memory();
/// The first line that `command` prints through the shell; empty if it fails.
[[nodiscard]] std::string first_line_of(const std::string& command);
/// Whether the dynamic linker finds `library`.
[[nodiscard]] bool has_library(const std::string& library);

}  // namespace tessera::tools
