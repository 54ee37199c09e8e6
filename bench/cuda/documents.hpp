#pragma once

#include <cstdint>
#include <vector>

namespace tessera::bench {

/// Documents packed into samples of `seq` tokens: those of a sample fill it.
struct Documents {
  std::int64_t seq;
  /// [samples, seq]: the position where the token's document starts (AttentionForward::first_key).
  std::vector<std::int32_t> first_key;

  /// The scores that tokens need within their documents, as a part of all causal scores.
  [[nodiscard]] double share_of_scores() const;
};

/// Documents of random lengths from half to one and a half times `mean`.
[[nodiscard]] Documents packed_documents(std::int64_t samples, std::int64_t seq, std::int64_t mean);

}  // namespace tessera::bench
