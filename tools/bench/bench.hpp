#pragma once

#include <span>

namespace tessera::tools {

/// `tessera bench`: measures what the arguments after "bench" name, prints a table and writes the
/// JSON. Errors as parse_bench; Error if the JSON cannot be written.
void run_bench(std::span<const char* const> arguments);

}  // namespace tessera::tools
