#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::nn {

/// The sizes of a GPT-2. The defaults are gpt-nano.
struct GPTConfig {
  std::int64_t layers = 4;    ///< the number of blocks
  std::int64_t hidden = 128;  ///< the length of a token's vector
  std::int64_t heads = 4;     ///< the heads of each attention, a divisor of `hidden`
  std::int64_t vocab = 256;   ///< the number of tokens
  std::int64_t seq = 128;     ///< the number of positions, which is the length of every sequence

  /// Returns the sizes of "gpt-nano", "gpt2", "gpt2-medium", "gpt2-large" or "gpt2-xl". Throws
  /// ConfigError that lists the names if `name` is not one.
  [[nodiscard]] static GPTConfig preset(std::string_view name);
  /// Returns the names that `preset` takes.
  [[nodiscard]] static const std::vector<std::string_view>& preset_names();

  /// Throws ConfigError that says what to change unless every size is at least 1 and small enough
  /// for 63-bit arithmetic, and `heads` divides `hidden`.
  void validate() const;

  /// Returns the number of values of one head.
  [[nodiscard]] std::int64_t head_size() const noexcept { return hidden / heads; }
  /// Returns the number of elements from one row of logits to the next: `vocab` rounded up to a
  /// multiple of 64. Products on GPUs are fast if their rows start at multiples of 16 bytes; those
  /// of 50,257 logits do not.
  [[nodiscard]] std::int64_t logits_row_elems() const noexcept { return (vocab + 63) / 64 * 64; }
  /// Returns the number of distinct parameter elements, the tied head counted once:
  ///
  ///     (vocab + seq) hidden + layers (12 hidden^2 + 13 hidden) + 2 hidden
  [[nodiscard]] std::int64_t parameter_elems() const noexcept;

  friend bool operator==(const GPTConfig&, const GPTConfig&) = default;
};

}  // namespace tessera::nn
