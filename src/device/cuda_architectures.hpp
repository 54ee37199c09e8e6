#pragma once

#include <string_view>

namespace tessera::device {

/// Whether code compiled for `architectures` runs on a device of compute capability major.minor.
/// The list is CMake's, with commas or semicolons: "80-real,90".
///
///   80-real      machine code: major 8 and minor 0 or higher
///   80-virtual   code that the driver compiles: 8.0 or higher
///   80           both
///   90a, 100f    one capability only; one major and this minor or higher
///
/// Words ("native", "all") cannot be checked: true.
[[nodiscard]] bool has_code_for(std::string_view architectures, int major, int minor);

}  // namespace tessera::device
