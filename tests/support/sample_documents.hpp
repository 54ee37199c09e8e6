#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "tessera/base/ignored_target.hpp"
#include "tessera/nn/decoder.hpp"

// Documents of random lengths in the sequences of a test, and targets that do not count.
namespace tessera::test {

/// Where the documents of a sequence begin, for each of its tokens: depends on the sample's number
/// only.
inline std::vector<std::int32_t> sample_documents(std::int64_t seq, std::int64_t sample) {
  std::mt19937 generator{static_cast<std::uint32_t>(sample + 77)};
  std::vector<std::int32_t> first_keys;
  std::int32_t begin = 0;
  for (std::int32_t t = 0; t < seq; ++t) {
    if (generator() % 5 == 0) { begin = t; }
    first_keys.push_back(begin);
  }
  return first_keys;
}

/// Ignores the first target of every document of a sequence and, in some samples, many more: ranks
/// and micro-batches count different numbers.
inline void ignore_targets(std::span<std::int32_t> targets,
                           std::span<const std::int32_t> first_keys, std::int64_t sample) {
  std::mt19937 generator{static_cast<std::uint32_t>(sample + 177)};
  for (std::size_t t = 0; t < targets.size(); ++t) {
    const bool last_of_document =
        t + 1 < first_keys.size() && first_keys[t + 1] == static_cast<std::int32_t>(t + 1);
    if (last_of_document || generator() % 4 < static_cast<std::uint32_t>(sample % 4)) {
      targets[t] = kIgnoredTarget;
    }
  }
}

/// The documents of the samples [first, first + count), if `options` pack them. Also changes their
/// targets, if `options` mask them.
inline std::vector<std::int32_t> documents_of(const nn::DecoderOptions& options,
                                              std::vector<std::int32_t>& targets, std::int64_t seq,
                                              std::int64_t first) {
  std::vector<std::int32_t> all;
  for (std::size_t at = 0; at < targets.size(); at += static_cast<std::size_t>(seq), ++first) {
    const std::vector<std::int32_t> keys = sample_documents(seq, first);
    if (options.packed) { all.insert(all.end(), keys.begin(), keys.end()); }
    if (options.masked) {
      ignore_targets(std::span{targets}.subspan(at, static_cast<std::size_t>(seq)),
                     options.packed ? std::span{keys} : std::span<const std::int32_t>{}, first);
    }
  }
  return all;
}

}  // namespace tessera::test
