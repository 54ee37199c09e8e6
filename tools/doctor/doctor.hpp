#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera doctor`: prints what this machine and this build have, and what is missing; or, with
/// --support, what works together.
void doctor(const Settings& settings);

}  // namespace tessera::tools
