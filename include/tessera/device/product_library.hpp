#pragma once

#include <string>

namespace tessera {

/// Returns the library that computes matrix products on CPUs besides Tessera's own kernels, with
/// its version and the instructions that it may use on this machine: "oneDNN 2.6.3 (AMX)". Empty if
/// this build has none.
[[nodiscard]] std::string product_library();

}  // namespace tessera
