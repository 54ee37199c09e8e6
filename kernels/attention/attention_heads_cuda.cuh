#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "kernels/attention/attention.hpp"
#include "kernels/dropout/mask_key.hpp"
#include "kernels/support/cuda/cuda_lanes.cuh"

// What attention's kernels on CUDA know of heads, and of which of their probabilities are dropped.
namespace tessera::kernels::cuda {

inline constexpr int kEight = 8;  // neighbours that a thread loads at once: a pack of 16 bits each

/// HeadMask, made four keys at a time.
struct KeyMask {
  bool on;
  float factor;
  std::uint32_t threshold;
  std::array<std::uint32_t, 2> key;
  std::int64_t first_sample;

  /// Word j is that of key `first` + j, `first` a multiple of four: dropped if it is below
  /// `threshold`. `row` counts the query rows of all heads of a sample.
  [[nodiscard]] __device__ std::array<std::uint32_t, 4> words(std::int64_t sample, std::int64_t row,
                                                              std::int64_t seq,
                                                              std::int64_t first) const {
    const auto group = static_cast<std::uint64_t>((row * ((seq + 3) / 4)) + first / 4);
    const auto stream = static_cast<std::uint64_t>(first_sample + sample);
    return philox4x32(
        {static_cast<std::uint32_t>(group), static_cast<std::uint32_t>(group >> 32U),
         static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32U)},
        key);
  }
  /// What the probabilities of those four keys are multiplied by.
  __device__ void factors(std::int64_t sample, std::int64_t row, std::int64_t seq,
                          std::int64_t first, float (&to)[4]) const {
    const std::array<std::uint32_t, 4> of = words(sample, row, seq, first);
#pragma unroll
    for (int j = 0; j < 4; ++j) { to[j] = of[j] < threshold ? 0.0F : factor; }
  }
};

/// All heads of all sequences.
struct Heads {
  std::int64_t count;
  std::int64_t heads;
  std::int64_t seq;
  std::int64_t size;
  std::int64_t hidden;
  float scale;
  KeyMask mask;
  Access access;

  /// Tiles of `rows` rows of a head.
  [[nodiscard]] __host__ __device__ std::int64_t tiles(int rows) const {
    return (seq + rows - 1) / rows;
  }
};

/// One of them.
struct Head {
  const Heads& all;
  std::int64_t index;

  [[nodiscard]] __device__ std::int64_t sample() const { return index / all.heads; }
  [[nodiscard]] __device__ std::int64_t number() const { return index % all.heads; }
  /// Of row t in log_sum_exp.
  [[nodiscard]] __device__ std::int64_t row(std::int64_t t) const { return index * all.seq + t; }
  /// Where row t lies in a tensor of `parts` matrices side by side.
  [[nodiscard]] __device__ std::int64_t at(std::int64_t t, int part, int parts) const {
    return ((sample() * all.seq + t) * parts + part) * all.hidden + number() * all.size;
  }
};

template <class Args>
[[nodiscard]] Heads heads_of(const Args& args, std::initializer_list<ConstValues> arrays) {
  const AttentionShape& shape = args.shape;
  const Dropout rule{
      .x = nullptr, .y = nullptr, .samples = 0, .sample_elems = 0, .p = args.dropout};
  return {.count = shape.batch * shape.heads,
          .heads = shape.heads,
          .seq = shape.seq,
          .size = shape.head_size,
          .hidden = shape.heads * shape.head_size,
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_size))),
          .mask = {.on = args.dropout > 0.0F,
                   .factor = rule.factor(),
                   .threshold = rule.threshold(),
                   .key = mask_key(args.key),
                   .first_sample = args.key.first_sample},
          .access = access_of(kEight, shape.head_size, arrays)};
}

/// means[row] = the sum of y * dy over each row, rows as those of log_sum_exp.
void attention_means(const AttentionBackward& args, const Heads& heads, float* means,
                     cudaStream_t stream);

}  // namespace tessera::kernels::cuda
