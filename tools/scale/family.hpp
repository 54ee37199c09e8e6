#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/nn/decoder_config.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Models that differ only in size. Depth and width grow together: the member with index k has
///
///   layers = k,  hidden = head_size max(1, round(aspect k / head_size)),  heads = hidden /
///   head_size
///
/// and all have the same vocabulary and sequence length. Each family is named after its published
/// member: gpt2 has index 12 (124 M parameters), gpt-nano index 4.
struct Family {
  std::string name;
  std::int64_t head_size = 64;
  std::int64_t aspect = 64;  ///< width per layer
  std::int64_t vocab = 50257;
  std::int64_t seq = 1024;

  [[nodiscard]] nn::DecoderConfig member(std::int64_t index) const;
  /// The index of the largest member: 1024, or less if members would exceed the largest possible
  /// model.
  [[nodiscard]] std::int64_t last() const;
  /// "layers = k, hidden = 64 k, heads = k".
  [[nodiscard]] std::string rule() const;
};

[[nodiscard]] const std::vector<std::string>& family_names();

/// The family of `settings`: `--model`, with `--aspect`, `--vocab` and `--seq` replacing its own
/// values. ConfigError if there is no such family, or if its smallest member is not a valid model.
[[nodiscard]] Family family_of(const Settings& settings);

/// `--budget`; by default a budget for models of a size that people train, or, with `--measure`,
/// for models that any machine runs in seconds.
[[nodiscard]] std::size_t scale_budget(const Settings& settings);

}  // namespace tessera::tools
