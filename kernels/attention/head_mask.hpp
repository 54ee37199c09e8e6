#pragma once

#include <algorithm>

#include "kernels/attention/attention.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/philox_words.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels {

/// The dropped probabilities of one head of one sequence. They are computed from counters, so any
/// thread can recompute any row in backward.
class HeadMask {
 public:
  /// `head` counts the heads of all sequences, `first_head` those before a sequence's first.
  HeadMask(const AttentionShape& shape, float dropout, const DropoutKey& key,
           std::int64_t first_head, std::int64_t head)
      : rule_{.x = nullptr, .y = nullptr, .samples = 0, .sample_elems = 0, .p = dropout},
        groups_a_row_{static_cast<std::uint64_t>(ceil_div(shape.seq, std::int64_t{4}))},
        first_group_{static_cast<std::uint64_t>((first_head + head % shape.heads) * shape.seq) *
                     groups_a_row_} {
    if (!on()) { return; }
    const auto sample = static_cast<std::uint64_t>(key.first_sample + head / shape.heads);
    stream_ = {mask_key(key), static_cast<std::uint32_t>(sample),
               static_cast<std::uint32_t>(sample >> 32U)};
  }

  [[nodiscard]] bool on() const noexcept { return rule_.p > 0.0F; }
  [[nodiscard]] float factor() const noexcept { return rule_.factor(); }

  /// Calls body(first, elems, kept) for the keys from + [0, visible) of row `query`, a few at a
  /// time: keys from + [first, first + elems). In kept(i) the lanes from first + i on have no bits
  /// set if the key is dropped, else all. `from` is a multiple of kPhiloxWords.
  template <class Body>
  void for_keys(std::int64_t query, std::int64_t from, std::int64_t visible, Body body) const {
    alignas(64) std::uint32_t words[kPhiloxWords];
    const std::uint32_t threshold = rule_.threshold();
    const auto kept = [&words, threshold](std::int64_t i) {
      UintVec word;
      std::memcpy(&word, words + i, sizeof word);
      return word >= threshold;
    };
    const std::uint64_t row = first_group_ + static_cast<std::uint64_t>(query) * groups_a_row_ +
                              static_cast<std::uint64_t>(from) / 4;
    for (std::int64_t first = 0; first < visible; first += kPhiloxWords) {
      philox_words(stream_, row + static_cast<std::uint64_t>(first) / 4, words);
      body(first, std::min(kPhiloxWords, visible - first), kept);
    }
  }

 private:
  Dropout rule_;
  std::uint64_t groups_a_row_;
  std::uint64_t first_group_;
  PhiloxStream stream_ = {};
};

}  // namespace tessera::kernels
