#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera scale`: finds the largest models of a family that fit a budget, under each strategy on
/// each number of ranks, and with `--measure` trains those that this machine can hold. OutOfMemory
/// if even the smallest model fits nowhere; Error if a run holds a different amount than planned.
void scale_command(const Settings& settings);

}  // namespace tessera::tools
