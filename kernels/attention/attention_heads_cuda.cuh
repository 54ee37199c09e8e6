#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/attention/attention.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"

// Heads, and their dropped probabilities, as attention's CUDA kernels see them.
namespace tessera::kernels::cuda {

inline constexpr int kEight =
    8;  // neighbours that a thread loads at once: a pack of 16-bit elements

/// philox4x32 with a key that all threads share: the keys of its rounds are kernel arguments, and
/// take no registers.
class PhiloxRounds {
 public:
  explicit PhiloxRounds(std::array<std::uint32_t, 2> key) {
    for (int round = 0; round < kRounds; ++round) {
      keys_[round][0] = key[0] + static_cast<std::uint32_t>(round) * 0x9E3779B9U;
      keys_[round][1] = key[1] + static_cast<std::uint32_t>(round) * 0xBB67AE85U;
    }
  }

  [[nodiscard]] __device__ std::array<std::uint32_t, 4> words(std::uint64_t low,
                                                              std::uint64_t high) const {
    std::uint32_t c[4] = {static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32U),
                          static_cast<std::uint32_t>(high),
                          static_cast<std::uint32_t>(high >> 32U)};
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
      const std::uint64_t first = std::uint64_t{0xD2511F53U} * c[0];
      const std::uint64_t second = std::uint64_t{0xCD9E8D57U} * c[2];
      c[0] = static_cast<std::uint32_t>(second >> 32U) ^ c[1] ^ keys_[round][0];
      c[1] = static_cast<std::uint32_t>(second);
      c[2] = static_cast<std::uint32_t>(first >> 32U) ^ c[3] ^ keys_[round][1];
      c[3] = static_cast<std::uint32_t>(first);
    }
    return {c[0], c[1], c[2], c[3]};
  }

 private:
  static constexpr int kRounds = 10;
  std::uint32_t keys_[kRounds][2];
};

/// HeadMask, computed four keys at a time.
struct KeyMask {
  bool on;
  float factor;
  std::uint32_t threshold;
  std::int64_t first_sample;
  std::int64_t first_head;
  PhiloxRounds philox;

  /// Word j belongs to key `first` + j, where `first` is a multiple of four; the key is dropped if
  /// its word is below `threshold`. `row` counts the query rows of all heads of a sample.
  [[nodiscard]] __device__ std::array<std::uint32_t, 4> words(std::int64_t sample, std::int64_t row,
                                                              std::int64_t seq,
                                                              std::int64_t first) const {
    return philox.words(static_cast<std::uint64_t>((row * ((seq + 3) / 4)) + first / 4),
                        static_cast<std::uint64_t>(first_sample + sample));
  }
  /// The factors of those four keys' probabilities.
  __device__ void factors(std::int64_t sample, std::int64_t row, std::int64_t seq,
                          std::int64_t first, float (&to)[4]) const {
    const std::array<std::uint32_t, 4> of = words(sample, row, seq, first);
#pragma unroll
    for (int j = 0; j < 4; ++j) { to[j] = of[j] < threshold ? 0.0F : factor; }
  }
};

/// The matrices of a head: those of q, k and v lie in qkv and dqkv, those of y also in dy.
enum class Matrix : std::uint8_t { q, k, v, y };

/// All heads of all sequences.
struct Heads {
  std::int64_t count;  ///< of query heads, of all sequences
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t group;  ///< query heads of a key head
  std::int64_t seq;
  std::int64_t size;
  std::int64_t hidden;  ///< elements of a row of y
  std::int64_t packed;  ///< elements of a row of qkv
  float scale;
  SeenKeys seen;  ///< of the first sample
  KeyMask mask;
  Access access;

  /// Number of tiles of `rows` rows in a head.
  [[nodiscard]] __host__ __device__ std::int64_t tiles(int rows) const {
    return (seq + rows - 1) / rows;
  }
  /// Number of key heads of all sequences.
  [[nodiscard]] __host__ __device__ std::int64_t key_count() const { return count / group; }
};

/// What the kernels compute: plain attention, where each query head has keys of its own and queries
/// see all keys up to themselves; or any. Both have the same order of sums.
enum class Kind : std::uint8_t { plain, any };

/// One query head of one sequence, and its key head.
struct Head {
  const Heads& all;
  std::int64_t index;

  [[nodiscard]] __device__ std::int64_t sample() const { return index / all.heads; }
  [[nodiscard]] __device__ std::int64_t number() const { return index % all.heads; }
  /// Index of query row t among the rows of all heads of the sample, for the mask.
  [[nodiscard]] __device__ std::int64_t masked_row(std::int64_t t) const {
    return (all.mask.first_head + number()) * all.seq + t;
  }
  /// Index of row t in log_sum_exp.
  [[nodiscard]] __device__ std::int64_t row(std::int64_t t) const { return index * all.seq + t; }
  /// How far apart the rows of a matrix lie.
  [[nodiscard]] __device__ std::int64_t stride(Matrix matrix) const {
    return matrix == Matrix::y ? all.hidden : all.packed;
  }
  /// Offset of row t of a matrix in its array.
  [[nodiscard]] __device__ std::int64_t at(std::int64_t t, Matrix matrix) const {
    return (sample() * all.seq + t) * stride(matrix) + column(matrix) * all.size;
  }
  /// The first key that row t sees.
  [[nodiscard]] __device__ std::int64_t first_key(std::int64_t t) const {
    SeenKeys seen = all.seen;
    if (seen.first_key != nullptr) { seen.first_key += sample() * all.seq; }
    return seen.first(t);
  }

 private:
  /// The heads to the left of a matrix.
  [[nodiscard]] __device__ std::int64_t column(Matrix matrix) const {
    if (matrix == Matrix::q || matrix == Matrix::y) { return number(); }
    const std::int64_t k = all.heads + number() / all.group;
    return matrix == Matrix::k ? k : k + all.kv_heads;
  }
};

/// The kind of the attention that `args` describe.
template <class Args>
[[nodiscard]] Kind kind_of(const Args& args) {
  return is_plain(args.shape) && args.first_key == nullptr ? Kind::plain : Kind::any;
}

template <class Args>
[[nodiscard]] Heads heads_of(const Args& args, std::initializer_list<ConstValues> arrays) {
  const AttentionShape& shape = args.shape;
  const Dropout rule{
      .x = nullptr, .y = nullptr, .samples = 0, .sample_elems = 0, .p = args.dropout};
  return {.count = shape.batch * shape.heads,
          .heads = shape.heads,
          .kv_heads = kv_heads_of(shape),
          .group = group_of(shape),
          .seq = shape.seq,
          .size = shape.head_size,
          .hidden = shape.heads * shape.head_size,
          .packed = packed_of(shape),
          .scale = static_cast<float>(scale_of(shape)),
          .seen = seen_keys(args, 0),
          .mask = {.on = args.dropout > 0.0F,
                   .factor = rule.factor(),
                   .threshold = rule.threshold(),
                   .first_sample = args.key.first_sample,
                   .first_head = args.first_head,
                   .philox = PhiloxRounds{mask_key(args.key)}},
          .access = access_of(kEight, shape.head_size, arrays)};
}

/// means[row] = the sum of y * dy over each row, indexed as log_sum_exp.
void attention_means(const AttentionBackward& args, const Heads& heads, float* means,
                     cudaStream_t stream);

}  // namespace tessera::kernels::cuda
