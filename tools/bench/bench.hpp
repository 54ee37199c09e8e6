#pragma once

#include <span>

namespace tessera::tools {

/// `tessera bench`: measures the subject that `arguments` name, prints a table and writes the JSON.
/// Errors: those of parse_bench; Error if the JSON cannot be written.
void run_bench(std::span<const char* const> arguments);

}  // namespace tessera::tools
