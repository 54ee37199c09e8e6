#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of rotary_forward and rotary_backward. Each token has a row, whose first elements are
/// its heads side by side.
///
/// One call rotates queries and keys that lie side by side in the output [rows, 3 hidden] of one
/// product: it has twice the heads, and `row_elems` is 3 hidden.
struct Rotary {
  Values x;                ///< [batch, seq, heads, head_size], rotated in place; fp32, bf16 or fp16
  const float* cosines;    ///< [seq, head_size / 2], in device memory: see rotary_angles
  const float* sines;      ///< [seq, head_size / 2], in device memory
  std::int64_t batch;      ///< samples
  std::int64_t seq;        ///< tokens of a sample
  std::int64_t heads;      ///< heads to rotate in each row
  std::int64_t head_size;  ///< elements of a head; even
  std::int64_t row_elems = 0;  ///< elements from one row to the next; 0: heads * head_size
};

/// Rotates the pairs (a, b) = (x[i], x[i + head_size / 2]) of every head of token t:
///
///     a <- a cos - b sin    b <- b cos + a sin    with cos, sin = cosines, sines[t, i]
///
/// in fp32, rounded once. This is rotary position embedding (Su et al. 2021) with the halves of a
/// head paired, as in GPT-NeoX and Hugging Face's Llama. Weights made for neighbouring pairs need
/// their rows reordered.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, an odd head_size, a row shorter than its heads, or a
///         null or fp64 array.
void rotary_forward(const Rotary& args, Stream stream);

/// Computes the gradient of rotary_forward in place: x holds the gradient of the rotated values,
/// which is rotated back. Bits and errors are those of rotary_forward.
void rotary_backward(const Rotary& args, Stream stream);

/// Fills the tables of rotary_forward in host memory before it returns: row t has cos and sin of
/// t * base^(-2i / head_size), computed in fp64 and rounded. Device::copy_in copies them to the
/// device. For scaled variants the caller fills tables itself. Throws ContractError if a span does
/// not have seq * head_size / 2 elements, or head_size is odd.
void rotary_angles(std::int64_t seq, std::int64_t head_size, double base, std::span<float> cosines,
                   std::span<float> sines);

}  // namespace tessera::kernels
