#pragma once

#include "tools/options/settings.hpp"

namespace tessera::tools {

/// `tessera sample`: samples text from a model's weights.
void sample(const Settings& settings);

}  // namespace tessera::tools
