#pragma once

#include "settings.hpp"

namespace tessera::tools {

/// `tessera compare`.
void compare(const Settings& settings);

}  // namespace tessera::tools
