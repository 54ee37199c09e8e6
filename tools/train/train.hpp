#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera train`.
void train(const Settings& settings);

}  // namespace tessera::tools
