#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera compare`: every strategy with one accumulate mode, which `automatic` settles. Error if
/// losses that have to agree differ, or a rank held other than was planned.
void compare(const Settings& settings);

}  // namespace tessera::tools
