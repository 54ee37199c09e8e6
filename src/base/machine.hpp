#pragma once

#include <string>

namespace tessera {

/// The same for all processes of a machine as it runs now, and no other's: its kernel's boot id, or
/// its name where there is none. TESSERA_MACHINE takes its place, for machines that were copied as
/// they ran, and to try what several would do on one.
[[nodiscard]] std::string machine_id();

}  // namespace tessera
