#pragma once

#include <string_view>

namespace tessera::tools {

/// Opens the null device for each of descriptors 0, 1 and 2 that is closed. Call it before anything
/// opens a file: the file would get such a number, and receive what is printed there.
void open_closed_descriptors() noexcept;

/// Writes `text` to standard error. A failed write (a full disk, a closed pipe) affects neither
/// what the program does nor its exit status.
void tell(std::string_view text) noexcept;

}  // namespace tessera::tools
