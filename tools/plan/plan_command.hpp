#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera plan`. Shows what was planned, then throws OutOfMemory if nothing fits the budget.
void plan_command(const Settings& settings);

}  // namespace tessera::tools
