#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// The values of a head that are a pair, if its first n values are rotated.
enum class RotaryPairs : std::uint8_t {
  halves,      ///< value i and value i + n / 2, as in GPT-NeoX and Hugging Face's Llama
  neighbours,  ///< value 2i and value 2i + 1, as in GPT-J and the first Llama
};

/// Arguments of rotary_forward and rotary_backward. Each token has a row, whose first elements are
/// its heads side by side. n is the number of rotated values of a head.
///
/// One call rotates queries and keys that lie side by side in the output of one product: `heads`
/// counts both, and `row_elems` is the length of the product's rows.
struct Rotary {
  Values x;                ///< [batch, seq, heads, head_size], rotated in place; fp32, bf16 or fp16
  const float* cosines;    ///< [seq, n / 2], in device memory: see rotary_angles
  const float* sines;      ///< [seq, n / 2], in device memory
  std::int64_t batch;      ///< samples
  std::int64_t seq;        ///< tokens of a sample
  std::int64_t heads;      ///< heads to rotate in each row
  std::int64_t head_size;  ///< elements of a head
  std::int64_t row_elems = 0;  ///< elements from one row to the next; 0: heads * head_size
  /// n: the first values of each head, which are rotated; an even number; 0: head_size. The others
  /// do not change.
  std::int64_t rotated = 0;
  RotaryPairs pairs = RotaryPairs::halves;  ///< which of them are a pair
  /// [batch, seq] in device memory: the position of token t is t - first_key[t], as if its document
  /// began there (see AttentionForward::first_key); null: it is t. A value outside [0, t] counts as
  /// the nearer end.
  const std::int32_t* first_key = nullptr;
};

/// Rotates the pairs (a, b) of every head of a token at position p:
///
///     a <- a cos - b sin    b <- b cos + a sin    with cos, sin = cosines, sines[p, i]
///
/// for pair i, in fp32, rounded once. This is rotary position embedding (Su et al. 2021).
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, an odd number of rotated values or one above
///         head_size, a row shorter than its heads, or a null or fp64 array.
void rotary_forward(const Rotary& args, Stream stream);

/// Computes the gradient of rotary_forward in place: x holds the gradient of the rotated values,
/// which is rotated back. Bits and errors are those of rotary_forward.
void rotary_backward(const Rotary& args, Stream stream);

/// Llama 3's scaling of the angles (Llama 3.1's model card and Hugging Face's "llama3" rope type).
/// With w = 2 pi / frequency, the length of a turn in positions, a frequency is
///
///     unchanged            if w < original_positions / high_frequency_factor
///     divided by factor    if w > original_positions / low_frequency_factor
///     between both, linearly in original_positions / w, otherwise
struct RotaryScaling {
  double factor = 1.0;                  ///< by which the longest turns are stretched
  double low_frequency_factor = 1.0;    ///< below high_frequency_factor
  double high_frequency_factor = 4.0;   ///< above low_frequency_factor
  std::int64_t original_positions = 0;  ///< the positions before the stretching; 0: no scaling

  friend bool operator==(const RotaryScaling&, const RotaryScaling&) = default;
};

/// Fills the tables of rotary_forward in host memory before it returns: row t has cos and sin of
/// t * base^(-2i / rotated), or of the scaled frequency, computed in fp64 and rounded.
/// Device::copy_in copies them to the device. Throws ContractError if a span does not have
/// seq * rotated / 2 elements, if `rotated` is odd, or for a scaling whose factors are not above 0
/// and in order.
void rotary_angles(std::int64_t seq, std::int64_t rotated, double base, std::span<float> cosines,
                   std::span<float> sines, const RotaryScaling& scaling = {});

}  // namespace tessera::kernels
