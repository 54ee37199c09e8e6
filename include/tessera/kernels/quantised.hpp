#pragma once

#include <cstdint>

#include "tessera/base/values.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::kernels {

// Frozen weights in 4 or 8 bits, for adapters on a quantised base (QLoRA, Dettmers et al. 2023). A
// tensor is quantised in pieces of any number of whole blocks, in any order, with the bits of the
// whole; only the tensor's last block may be shorter. A rank dequantises any part that begins at a
// multiple of kNF4Block, which every shard and parameter does.
//
// The caller refuses weights that are not finite. It finds them without a pass over the weights:
// the absmax (NF4) or the scale (int8) of a block with an infinity is infinite, with a NaN it is
// NaN. The codes of such a block are arbitrary, but the same on every backend.

/// Elements that share a largest magnitude in NF4.
inline constexpr std::int64_t kNF4Block = 64;
/// Blocks of NF4 whose largest magnitudes share a scale.
inline constexpr std::int64_t kNF4Group = 256;
/// Elements that share a scale in int8.
inline constexpr std::int64_t kInt8Block = 256;

/// Returns the number of blocks of a tensor in NF4.
[[nodiscard]] constexpr std::int64_t nf4_blocks(std::int64_t elems) noexcept {
  return (elems + kNF4Block - 1) / kNF4Block;
}
/// Returns the number of groups of `blocks` blocks.
[[nodiscard]] constexpr std::int64_t nf4_groups(std::int64_t blocks) noexcept {
  return (blocks + kNF4Group - 1) / kNF4Group;
}
/// Returns the number of blocks of a tensor in int8.
[[nodiscard]] constexpr std::int64_t int8_blocks(std::int64_t elems) noexcept {
  return (elems + kInt8Block - 1) / kInt8Block;
}

/// Arguments of nf4_quantise.
struct NF4Quantise {
  ConstValues values;   ///< [elems] fp32, bf16 or fp16; begins at a block of the tensor
  std::uint8_t* codes;  ///< [(elems + 1) / 2], overwritten: two a byte, the first in the high bits
  float* absmax;        ///< [nf4_blocks(elems)], overwritten: the largest magnitude of each block
  std::int64_t elems;   ///< whole blocks, unless the tensor ends here
};

/// Quantises values to the 16 values of NF4 (NormalFloat, Dettmers et al. 2023, appendix E):
///
///     code = the number of midpoints between neighbouring values that are below
///            x * (1 / max(absmax, 1e-38))
///
/// in fp32, each operation rounded, midpoints too. A value on a midpoint takes the lower code, and
/// 0 has the code 7, whose value is 0, in every block. If `elems` is odd, the last byte holds the
/// code of 0 in its low bits.
///
/// These are the codes that bitsandbytes 0.50 computes on CPUs (quantize_4bit, nf4, blocksize 64),
/// except that in a last block that is not whole it divides, and its absmax is at least 1e-38. Its
/// CUDA kernels use an approximate reciprocal and exact midpoints: there a value within two
/// roundings of a midpoint may have the neighbouring code.
///
/// Bits:   the same on every backend. A block depends on its values only.
/// Errors: ContractError for a negative size, a null array, or values of fp64.
void nf4_quantise(const NF4Quantise& args, Stream stream);

/// Arguments of nf4_quantise_absmax.
struct NF4QuantiseAbsmax {
  const float* absmax;  ///< [blocks], from nf4_quantise; begins at a group of the tensor
  float offset;         ///< the mean of absmax over the whole tensor
  std::uint8_t* codes;  ///< [blocks], overwritten
  float* scales;        ///< [nf4_groups(blocks)], overwritten
  std::int64_t blocks;  ///< whole groups, unless the tensor ends here
};

/// Quantises the largest magnitudes of blocks a second time, to 8 bits:
///
///     scale = the largest |absmax - offset| of the group
///     code  = the number of midpoints of the dynamic map that are below
///             (absmax - offset) * (1 / max(scale, 1e-38))
///
/// in fp32, each operation rounded, midpoints too. The dynamic map is bitsandbytes'
/// create_dynamic_map(): 0, 1, and 127 numbers of each sign, of seven powers of ten. Any offset
/// gives a valid result; the mean gives small errors.
///
/// These are the codes of bitsandbytes' implementation in PyTorch (compress_statistics), except
/// that in a last group that is not whole it divides. Its compiled library for CPUs looks codes up
/// in a table that is coarser than the map around 0.
///
/// Bits:   the same on every backend. A group depends on its blocks and the offset only.
/// Errors: ContractError for a negative size, a null array, or an offset that is negative or not
///         finite.
void nf4_quantise_absmax(const NF4QuantiseAbsmax& args, Stream stream);

/// Weights in NF4, or a part of them that begins at a block.
struct NF4Weights {
  const std::uint8_t* codes;         ///< of the part's elements
  const std::uint8_t* absmax_codes;  ///< of the part's blocks
  const float* scales;               ///< from that of the group of the part's first block on
  float offset;                      ///< of the tensor
  std::int64_t first = 0;            ///< index of the part's first element in the tensor

  /// Returns the part that begins `elems` elements later, a multiple of kNF4Block.
  [[nodiscard]] NF4Weights at(std::int64_t elems) const noexcept {
    constexpr std::int64_t group = kNF4Block * kNF4Group;
    return {codes + elems / 2, absmax_codes + elems / kNF4Block,
            scales + ((first + elems) / group - first / group), offset, first + elems};
  }
};

/// Arguments of nf4_dequantise.
struct NF4Dequantise {
  NF4Weights from;     ///< begins at a multiple of kNF4Block
  Values to;           ///< [elems] fp32, bf16 or fp16, overwritten
  std::int64_t elems;  ///< number of elements
};

/// Computes to[i] = value(code) * (dynamic value(absmax code) * scale + offset) in fp32. Each
/// operation is rounded, and the product once more where `to` has 16 bits, as in bitsandbytes.
///
/// Error:  at most 0.152 absmax + d (1 + 2^-23) where absmax is 1e-38 or more, beside the rounding
/// to
///         the dtype of `to`. Half the widest gap between values is below 0.152. The error of
///         absmax, d, is at most 0.0071 of the largest |absmax - offset| of its group, half the
///         widest gap of the map, and 2^-23 absmax.
/// Bits:   the same on every backend. An element depends on its codes and scales only.
/// Errors: ContractError for a negative size, a `first` that is not a multiple of kNF4Block, a null
///         array, `to` of fp64, or an offset that is negative or not finite.
void nf4_dequantise(const NF4Dequantise& args, Stream stream);

/// Arguments of int8_quantise.
struct Int8Quantise {
  ConstValues values;  ///< [elems] fp32, bf16 or fp16; begins at a block of the tensor
  std::int8_t* codes;  ///< [elems], overwritten: -127 to 127
  float* scales;       ///< [int8_blocks(elems)], overwritten
  std::int64_t elems;  ///< whole blocks, unless the tensor ends here
};

/// Quantises values to 8 bits, symmetrically:
///
///     m     = max(the largest magnitude of the block, 2^-100)
///     scale = m / 127        code = x * (127 / m), rounded to nearest, ties to even
///
/// in fp32, each operation rounded.
///
/// Bits:   the same on every backend. A block depends on its values only.
/// Errors: ContractError for a negative size, a null array, or values of fp64.
void int8_quantise(const Int8Quantise& args, Stream stream);

/// Weights in int8, or a part of them that begins at a multiple of kNF4Block.
struct Int8Weights {
  const std::int8_t* codes;  ///< of the part's elements
  const float* scales;       ///< from that of the block of the part's first element on
  std::int64_t first = 0;    ///< index of the part's first element in the tensor

  /// Returns the part that begins `elems` elements later.
  [[nodiscard]] Int8Weights at(std::int64_t elems) const noexcept {
    return {codes + elems, scales + ((first + elems) / kInt8Block - first / kInt8Block),
            first + elems};
  }
};

/// Arguments of int8_dequantise.
struct Int8Dequantise {
  Int8Weights from;    ///< begins at a multiple of kNF4Block, within a block or not
  Values to;           ///< [elems] fp32, bf16 or fp16, overwritten
  std::int64_t elems;  ///< number of elements
};

/// Computes to[i] = code * scale in fp32, rounded, and once more where `to` has 16 bits.
///
/// Error:  at most half a scale (1 + 2^-13), beside the rounding to the dtype of `to`.
/// Bits:   the same on every backend. An element depends on its code and scale only.
/// Errors: ContractError for a negative size, a `first` that is not a multiple of kNF4Block, a null
///         array, or `to` of fp64.
void int8_dequantise(const Int8Dequantise& args, Stream stream);

}  // namespace tessera::kernels
