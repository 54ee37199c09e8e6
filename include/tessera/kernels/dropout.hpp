#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// The key of a dropout mask. A mask depends on its key, the sample and the position in it only:
/// not on ranks, micro-batches, threads, or how often it is computed.
struct DropoutKey {
  std::uint64_t seed = 0;         ///< the seed of the run
  std::int64_t step = 0;          ///< optimizer steps made before
  std::uint32_t site = 0;         ///< number of the dropout in the model
  std::int64_t first_sample = 0;  ///< index of the first sample in the step's global batch
};

/// Arguments of dropout. x and y have one dtype: fp32, bf16 or fp16.
struct Dropout {
  ConstValues x;              ///< [samples, sample_elems]
  Values y;                   ///< [samples, sample_elems], overwritten; may be x, no other overlap
  std::int64_t samples;       ///< number of samples
  std::int64_t sample_elems;  ///< elements of each sample
  float p;                    ///< probability with which an element is dropped, in [0, 1)
  DropoutKey key = {};        ///< the key of the random words
  std::int64_t first_elem = 0;  ///< index in its sample of each row's first element

  /// Returns p 2^32: an element is dropped if its random word is below it.
  [[nodiscard]] std::uint32_t threshold() const noexcept {
    return static_cast<std::uint32_t>(static_cast<double>(p) * 0x1p32);
  }
  /// Returns the factor by which elements that are not dropped are multiplied: 1 / (1 - p).
  [[nodiscard]] float factor() const noexcept {
    return static_cast<float>(1.0 / (1.0 - static_cast<double>(p)));
  }
};

/// Drops each element with probability p, and scales the others:
///
///     y[s, i] = word(s, first_elem + i) < p 2^32 ? 0 : x[s, i] / (1 - p)
///     word(s, i) = word i % 4 of philox4x32({low, high of i / 4, low, high of first_sample + s},
///                                           a key made of seed, step and site)
///
/// where the factor 1 / (1 - p) is rounded to fp32. The gradient of x is the same call on the
/// gradient of y.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size or first_elem, a p outside [0, 1), a null or fp64
///         array, or dtypes that differ.
void dropout(const Dropout& args, Stream stream);

}  // namespace tessera::kernels
