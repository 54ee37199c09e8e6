#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "tessera/nn/decoder_config.hpp"
#include "tools/options/settings.hpp"

namespace tessera::tools {

/// Models that differ only in size, made from a published one. Depth and width grow together: the
/// member with index k has k layers and, if the published model has L layers,
///
///   hidden    = published hidden k / L    rounded to a multiple of the head size, or, where hidden
///                                         is not heads * head size, of gcd(hidden, 64)
///   key heads = published key heads k / L rounded, at least 1
///   heads     = key heads * (heads of the published model for each of its key heads)
///   MLP       = in the published proportion to hidden, rounded to a multiple of gcd(MLP, 64)
///
/// Rows of 64 values begin at multiples of 128 bytes in 16 bits. The head size, the vocabulary, the
/// sequence length, windows and all other parts are the published ones; the share of layers without
/// a window is kept. So the member with index L is the published model, and no size shrinks from a
/// member to the next. With `aspect`, hidden is aspect * k instead, and heads follow it.
///
/// Where queries share key heads, heads grow in larger steps than hidden does: heads * head size is
/// its published share of hidden to within half a step.
struct Family {
  std::string name;
  nn::DecoderConfig published;         ///< with the family's vocabulary and sequence length
  std::optional<std::int64_t> aspect;  ///< width per layer

  [[nodiscard]] nn::DecoderConfig member(std::int64_t index) const;
  /// The index of the largest member: 1024, or less if members would exceed the largest possible
  /// model.
  [[nodiscard]] std::int64_t last() const;
  /// "layers = k, hidden = 64 k, heads = k".
  [[nodiscard]] std::string rule() const;
};

/// The family of the model that `settings` name, with `--aspect`, `--vocab` and `--seq` replacing
/// its own values. ConfigError if there is no such model, or if the smallest member is not valid.
[[nodiscard]] Family family_of(const Settings& settings);

/// `--budget`; by default a budget for models of a size that people train, or, with `--measure`,
/// for models that any machine runs in seconds.
[[nodiscard]] std::size_t scale_budget(const Settings& settings);

}  // namespace tessera::tools
