#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera plan`. OutOfMemory, after what was planned has been shown, if nothing fits the budget.
void plan_command(const Settings& settings);

}  // namespace tessera::tools
