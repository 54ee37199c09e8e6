#pragma once

#include "data/data_file.hpp"
#include "data/token_file.hpp"

namespace tessera::data {

/// Reads the header of a NumPy array (.npy, versions 1.0 to 3.0) whose magic `file` begins with.
/// Throws FormatError with path and byte, and what to write instead, unless the array has one
/// dimension and little-endian integers of 2, 4 or 8 bytes that fill the rest of the file. A part
/// of a last token is left to the caller.
[[nodiscard]] TokenFileLayout npy_layout(const DataFile& file);

}  // namespace tessera::data
