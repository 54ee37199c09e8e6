#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::nn {

/// The sizes of a GPT-2. The defaults are gpt-nano.
struct GPTConfig {
  std::int64_t layers = 4;
  std::int64_t hidden = 128;
  std::int64_t heads = 4;
  std::int64_t vocab = 256;
  std::int64_t seq = 128;  ///< positions: every sequence has this length

  /// "gpt-nano", "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl". ConfigError that lists them if
  /// `name` is none.
  [[nodiscard]] static GPTConfig preset(std::string_view name);
  [[nodiscard]] static const std::vector<std::string_view>& preset_names();

  /// ConfigError that says what to change unless every size is at least 1 and small enough for
  /// 63-bit arithmetic, and `heads` divides `hidden`.
  void validate() const;

  [[nodiscard]] std::int64_t head_size() const noexcept { return hidden / heads; }
  /// Elements from one row of logits to the next: `vocab` rounded up to a multiple of 64. Products
  /// on GPUs are fast if their rows start at multiples of 16 bytes: those of 50,257 logits do not.
  [[nodiscard]] std::int64_t logits_row_elems() const noexcept { return (vocab + 63) / 64 * 64; }
  /// Distinct parameters, the tied head counted once:
  ///
  ///   (vocab + seq) hidden + layers (12 hidden^2 + 13 hidden) + 2 hidden
  [[nodiscard]] std::int64_t parameter_elems() const noexcept;

  friend bool operator==(const GPTConfig&, const GPTConfig&) = default;
};

}  // namespace tessera::nn
