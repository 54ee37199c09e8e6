#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tessera/nn/decoder_config.hpp"

namespace tessera::tools {

/// "12 layers, hidden 768, 12 heads, vocab 50257, seq 1024"; where they differ from a GPT-2's, also
/// the heads of keys, the values of a head and those between an MLP's products.
[[nodiscard]] std::string describe_sizes(const nn::DecoderConfig& config);

/// The parts that differ from a GPT-2's, with their numbers: two models with the same sizes and
/// words compute alike. Empty for a GPT-2.
[[nodiscard]] std::string describe_parts(const nn::DecoderConfig& config);

/// A model in JSON outputs.
[[nodiscard]] nlohmann::ordered_json model_json(const std::string& name, std::int64_t parameters,
                                                const nn::DecoderConfig& config);

}  // namespace tessera::tools
