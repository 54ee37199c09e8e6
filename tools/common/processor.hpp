#pragma once

#include <string>

namespace tessera::tools {

/// The level that this build was compiled for: "x86-64-v3".
[[nodiscard]] std::string compiled_level();
/// The highest x86-64 level of the processor: "x86-64-v4"; empty on other processors.
[[nodiscard]] std::string processor_level();
/// ConfigError if the processor lacks what the program was compiled for.
void require_processor();

}  // namespace tessera::tools
