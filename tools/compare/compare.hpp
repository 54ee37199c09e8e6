#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera compare`: trains with every strategy in one accumulate mode, which replaces
/// `automatic`. Error if losses that must agree differ, or if a rank held a different amount of
/// memory than planned.
void compare(const Settings& settings);

}  // namespace tessera::tools
