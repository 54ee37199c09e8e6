#pragma once

#include "settings.hpp"
#include "tessera/nn/sample.hpp"

namespace tessera::tools {

/// What `settings` ask to be drawn from a model of `config`. ConfigError for a prompt that does not
/// go with it, and as nn::Sampler::validate.
[[nodiscard]] nn::Generation generation_of(const Settings& settings, const nn::GPTConfig& config);

}  // namespace tessera::tools
