#pragma once

#include <string_view>

namespace tessera::tools {

/// Opens the null device on those of descriptors 0, 1 and 2 that are closed. Called before anything
/// opens a file, which would otherwise take such a number and what is printed there.
void open_closed_descriptors() noexcept;

/// Writes `text` to standard error. One that cannot be written (a full disk, a pipe whose reader is
/// gone) changes nothing: neither what the program does nor its exit status.
void tell(std::string_view text) noexcept;

}  // namespace tessera::tools
