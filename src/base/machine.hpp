#pragma once

#include <string>

namespace tessera {

/// The same for all processes of a machine as it runs now, and no other's: its kernel's boot id, or
/// its name where there is none. TESSERA_MACHINE takes its place, for machines that were copied as
/// they ran, and to try what several would do on one.
[[nodiscard]] std::string machine_id();

/// 16 digits that follow from machine_id(), for the names of temporary files: locks on those of
/// this machine are seen here on every file system that has any.
[[nodiscard]] std::string machine_mark();

/// machine_mark(), "-", and 16 random digits.
[[nodiscard]] std::string unique_mark();

}  // namespace tessera
