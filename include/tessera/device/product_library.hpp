#pragma once

#include <string>

namespace tessera {

/// The library that computes matrix products on CPUs besides our own, its version and the
/// instructions that it may use here, as "oneDNN 2.6.3 (AMX)"; empty if this build has none.
[[nodiscard]] std::string product_library();

}  // namespace tessera
