#pragma once

#include "tessera/nn/sample.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// What `settings` ask to sample from a model of `config`. ConfigError for a prompt that does not
/// suit the model, and as for nn::Sampler::validate.
[[nodiscard]] nn::Generation generation_of(const Settings& settings,
                                           const nn::DecoderConfig& config);

}  // namespace tessera::tools
