#pragma once

#include <cstdint>
#include <span>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

/// Arguments of rotary_forward and rotary_backward: heads side by side at the beginning of each
/// row, one row a token.
///
/// Queries and keys that lie side by side in one product's output [rows, 3 hidden] are rotated by
/// one call, with twice the heads and `row_elems` 3 hidden.
struct Rotary {
  Values x;              ///< [batch, seq, heads, head_size], rotated in place; fp32, bf16 or fp16
  const float* cosines;  ///< [seq, head_size / 2], in device memory: see rotary_angles
  const float* sines;    ///< [seq, head_size / 2]
  std::int64_t batch;
  std::int64_t seq;
  std::int64_t heads;
  std::int64_t head_size;      ///< even
  std::int64_t row_elems = 0;  ///< from one token's row to the next; 0: heads * head_size
};

/// Rotates the pairs (a, b) = (x[i], x[i + head_size / 2]) of every head of token t:
///
///   a <- a cos - b sin    b <- b cos + a sin    with cos, sin = cosines, sines[t, i]
///
/// in fp32, rounded once: rotary position embedding (Su et al. 2021) with the halves of a head
/// paired, as GPT-NeoX and Hugging Face's Llama do. Weights made for neighbouring pairs want their
/// rows reordered.
///
/// Bits:   the same on every backend.
/// Errors: ContractError for a negative size, an odd head_size, a row shorter than its heads, or a
///         null or fp64 array.
void rotary_forward(const Rotary& args, Stream stream);

/// Computes the gradient: rotates x, the gradient of the rotated values, back.
void rotary_backward(const Rotary& args, Stream stream);

/// Fills the tables of rotary_forward on the host, at once: row t has cos and sin of
/// t * base^(-2i / head_size), computed in fp64 and rounded. Copy them to the device with
/// Device::copy_in; scaled variants fill tables of their own.
///
/// Errors: ContractError if a span does not hold seq * head_size / 2 elements, or head_size is odd.
void rotary_angles(std::int64_t seq, std::int64_t head_size, double base, std::span<float> cosines,
                   std::span<float> sines);

}  // namespace tessera::kernels
