#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/places.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/nn/hub.hpp"

// Models and results that tests/hub/record.py has recorded.
namespace tessera::test {

inline const std::vector<std::string> kHubModels{"gpt2",    "llama2", "llama3",
                                                 "mistral", "qwen2",  "qwen3"};

inline std::filesystem::path hub_folder(std::string_view model) {
  return std::filesystem::path{kSourceDir} / "tests/hub/data" / model;
}

inline nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file{path};
  return nlohmann::json::parse(file);
}

/// All tensors of a file in fp32, by name.
inline std::map<std::string, std::vector<float>> read_tensors(const std::filesystem::path& path) {
  SafetensorsReader reader{path};
  std::map<std::string, std::vector<float>> tensors;
  for (const auto& [name, entry] : reader.entries()) {
    auto& values = tensors[name];
    values.resize(static_cast<std::size_t>(entry.shape.elems()));
    reader.read(name, 0, values);
  }
  return tensors;
}

/// What transformers computes for a model in float64: 3 sequences of 24 tokens.
struct HubResults {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
  std::vector<double> losses;                       ///< before each of 20 steps of AdamW
  std::vector<float> logits;                        ///< [3, 24, vocab]
  std::map<std::string, std::vector<float>> grads;  ///< by the hub's names

  explicit HubResults(std::string_view model) {
    const nlohmann::json numbers = read_json(hub_folder(model) / "expected.json");
    inputs = numbers["inputs"].get<std::vector<std::int32_t>>();
    targets = numbers["targets"].get<std::vector<std::int32_t>>();
    losses = numbers["losses"].get<std::vector<double>>();
    for (auto& [name, values] : read_tensors(hub_folder(model) / "expected.safetensors")) {
      if (name == "logits") {
        logits = std::move(values);
      } else {
        grads[name.substr(5)] = std::move(values);
      }
    }
  }
};

/// The config of a recorded model, for sequences of 24 tokens.
inline nn::HubConfig hub_model(std::string_view model) {
  nn::HubConfig config = nn::read_hub_config(hub_folder(model));
  config.decoder.seq = 24;
  return config;
}

/// Writes `values`, a whole parameter of a Decoder, as the hub's tensors.
inline void to_hub(const nn::HubConfig& config, const ParameterInfo& parameter,
                   std::span<const float> values,
                   std::map<std::string, std::vector<float>>& tensors) {
  const bool vector = parameter.shape.rank() == 1;
  const std::int64_t row = parameter.shape[vector ? 0 : 1];
  for (const nn::HubPiece& piece : nn::hub_pieces(config, parameter)) {
    auto& to = tensors[piece.tensor];
    to.resize(static_cast<std::size_t>(piece.shape.elems()));
    const std::int64_t rows = std::ssize(to) / piece.columns;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < piece.columns; ++j) {
        const std::int64_t at = piece.transposed ? j * rows + i : i * piece.columns + j;
        to[static_cast<std::size_t>(at)] =
            values[static_cast<std::size_t>(i * row + piece.first_column + j)];
      }
    }
  }
}

/// |actual - expected| / |expected|.
inline double distance(std::span<const float> actual, std::span<const float> expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double apart = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    apart += std::pow(double{actual[i]} - double{expected[i]}, 2);
    norm += std::pow(double{expected[i]}, 2);
  }
  EXPECT_GT(norm, 0.0) << "nothing to compare";
  return std::sqrt(apart / norm);
}

}  // namespace tessera::test
