#pragma once

#include <string>

namespace tessera {

/// Equal for all processes of a machine since it started, and for no other machine: its kernel's
/// boot id, or its name if there is none. TESSERA_MACHINE overrides it, for machines that were
/// cloned while running, and to simulate several machines on one.
[[nodiscard]] std::string machine_id();

/// 16 digits derived from machine_id(), for the names of temporary files: locks on this machine's
/// files are visible here on every file system that has locks.
[[nodiscard]] std::string machine_mark();

/// machine_mark(), "-", and 16 random digits.
[[nodiscard]] std::string unique_mark();

}  // namespace tessera
