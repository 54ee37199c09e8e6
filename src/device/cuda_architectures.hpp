#pragma once

#include <string_view>

namespace tessera {

/// Whether code compiled for `architectures` runs on a device of compute capability major.minor.
/// As CMake lists them, with commas or semicolons: "80-real,90".
///
///   80-real      machine code: major 8 and minor 0 or higher
///   80-virtual   code that the driver compiles: 8.0 or higher
///   80           both
///   90a, 100f    of one capability alone, of one major and this minor or higher
///
/// Words ("native", "all") say nothing that could be judged: true.
[[nodiscard]] bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace tessera
