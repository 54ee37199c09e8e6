#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera doctor`: prints what this machine and this build have and what is missing, or, with
/// --support, which options work together.
void doctor(const Settings& settings);

}  // namespace tessera::tools
