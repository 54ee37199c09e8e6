#pragma once

#include <array>
#include <cstdint>

#include "kernels/update/cuda/cuda_update_table.cuh"
#include "kernels/update/cuda/cuda_weights.cuh"
#include "kernels/update/round_stochastic.hpp"
#include "kernels/update/stochastic.hpp"
#include "kernels/update/update_run.hpp"

// One pass over every run of a table. AdamW reads and writes, per element: 28 bytes with all arrays
// in fp32, or with a 16-bit gradient and a 16-bit copy; 30 with an fp32 gradient and a copy. A
// remainder instead of the master takes 2 fewer: parameter and remainder are read and written, 8
// bytes instead of 10.
//
// A thread issues the loads of all arrays before it uses the first: 128 bytes for AdamW in fp32 (4
// arrays, 8 elements), 112 with a 16-bit gradient. It takes up to 128 registers, 168 with
// stochastic rounding, so four blocks of 128 threads are resident, or three, and a multiprocessor
// has 42 to 64 KiB in flight. That exceeds the 25 KiB per multiprocessor that an H200 needs (4.8
// TB/s at a latency of 0.7 us, over 132): while some warps compute, enough others wait.
namespace tessera::kernels::cuda {

/// The random words of a thread's eight elements in one array.
struct EightWords {
  std::uint32_t at[8];
};

/// Random words of the elements from place(0) and from place(4) on. The tile starts at element
/// `tile` of the parameter.
__device__ inline EightWords words_of(const StochasticKey& key, std::int64_t tile) {
  EightWords words;
  for (int group = 0; group < 2; ++group) {
    const std::int64_t first = tile + place(4 * group);
    if (first % 4 == 0) {  // as in runs that start at multiples of four: one counter for four words
      const auto four = philox4x32(key.counter(static_cast<std::uint64_t>(first) / 4), key.key());
      for (int i = 0; i < 4; ++i) { words.at[4 * group + i] = four[static_cast<std::size_t>(i)]; }
    } else {
      for (int i = 0; i < 4; ++i) { words.at[4 * group + i] = key.word(first + i); }
    }
  }
  return words;
}

/// Stores the new values of an array of a run, rounded as the run says.
template <Rounding rounding>
struct Store {
  UpdateRun run;
  std::int64_t updates;

  __device__ void tile(Values to, RoundedArray array, std::int64_t at, const Eight& values) const {
    if constexpr (rounding == Rounding::nearest) {
      if (array == RoundedArray::parameter) { return store_parameters(to, at, values); }
      store_nearest(to.data, to.dtype, at, values);
    } else {
      EightWords words;
      if (to.dtype != DType::fp32) {
        words = words_of(StochasticKey::of(run, updates, array), run.first_in_parameter + at);
      }
      const auto narrow = [&](int i, float x) { return round(x, words.at[i], to.dtype); };
      store_tile(to.data, to.dtype, at, pack(values, to.dtype, narrow));
    }
  }
  __device__ void one(Values to, RoundedArray array, std::int64_t i, float value) const {
    if (to.dtype == DType::fp32) { return store_one(to.data, to.dtype, i, value); }
    auto& bits = static_cast<std::uint16_t*>(to.data)[i];
    if (rounding == Rounding::nearest) {
      const bool parameter = array == RoundedArray::parameter;
      bits = parameter ? narrow_parameter(value, to.dtype) : narrow_bits(value, to.dtype);
    } else {
      const StochasticKey key = StochasticKey::of(run, updates, array);
      bits = round(value, key.word(run.first_in_parameter + i), to.dtype);
    }
  }

  /// Writes the masters, or both halves.
  __device__ void weights(std::int64_t at, const Eight& values) const {
    if (run.remainder == nullptr) {
      store_nearest(run.master, DType::fp32, at, values);
      if (run.parameter.data != nullptr) {
        tile(run.parameter, RoundedArray::parameter, at, values);
      }
      return;
    }
    const auto lower = [](int, float x) { return remainder_bits(x); };
    store_parameters(run.parameter, at, values);
    store_tile(run.remainder, DType::bf16, at, pack(values, DType::bf16, lower));
  }
  __device__ void weight(std::int64_t i, float value) const {
    if (run.remainder == nullptr) {
      run.master[i] = value;
      if (run.parameter.data != nullptr) { one(run.parameter, RoundedArray::parameter, i, value); }
      return;
    }
    static_cast<std::uint16_t*>(run.parameter.data)[i] = parameter_bits(value);
    run.remainder[i] = remainder_bits(value);
  }

 private:
  static __device__ std::uint16_t round(float x, std::uint32_t word, DType dtype) {
    return dtype == DType::bf16 ? round_bf16(x, word) : round_fp16(x, word);
  }
};

/// A rule's pass over tiles. `Rule` has
///
///   static constexpr int kMoments;                                   // 0, 1 or 2
///   void operator()(float gradient, float& weight, float& first, float& second) const;
template <class Rule, Rounding rounding>
struct UpdateWork {
  UpdateRun run;
  Store<rounding> store;
  Rule rule;

  struct Loaded {
    Bits weight, gradient, first, second;
  };
  __device__ Loaded load(std::int64_t at) const {
    Loaded loaded;
    loaded.weight = load_weights(run, at);
    loaded.gradient = load_tile(run.gradient.data, run.gradient.dtype, at);
    if constexpr (Rule::kMoments > 0) {
      loaded.first = load_tile(run.first.data, run.first.dtype, at);
    }
    if constexpr (Rule::kMoments > 1) {
      loaded.second = load_tile(run.second.data, run.second.dtype, at);
    }
    return loaded;
  }
  __device__ void finish(std::int64_t at, const Loaded& loaded) const {
    Eight weight = unpack_weights(run, loaded.weight);
    const Eight gradient = unpack(loaded.gradient, run.gradient.dtype);
    Eight first{};
    Eight second{};
    if constexpr (Rule::kMoments > 0) { first = unpack(loaded.first, run.first.dtype); }
    if constexpr (Rule::kMoments > 1) { second = unpack(loaded.second, run.second.dtype); }
    for (int i = 0; i < 8; ++i) { rule(gradient.at[i], weight.at[i], first.at[i], second.at[i]); }
    store.weights(at, weight);
    if constexpr (Rule::kMoments > 0) { store.tile(run.first, RoundedArray::first, at, first); }
    if constexpr (Rule::kMoments > 1) { store.tile(run.second, RoundedArray::second, at, second); }
  }
  __device__ void one(std::int64_t i) const {
    float weight = load_one_weight(run, i);
    float first = 0.0F;
    float second = 0.0F;
    if constexpr (Rule::kMoments > 0) { first = load_one(run.first.data, run.first.dtype, i); }
    if constexpr (Rule::kMoments > 1) { second = load_one(run.second.data, run.second.dtype, i); }
    rule(load_one(run.gradient.data, run.gradient.dtype, i), weight, first, second);
    store.weight(i, weight);
    if constexpr (Rule::kMoments > 0) { store.one(run.first, RoundedArray::first, i, first); }
    if constexpr (Rule::kMoments > 1) { store.one(run.second, RoundedArray::second, i, second); }
  }
};

template <class Rule, Rounding rounding>
__global__ void __launch_bounds__(kUpdateThreads)
    update_kernel(const UpdateTable<typename Rule::Hyper> __grid_constant__ table,
                  const StepScalars* scalars) {
  each_chunk<Rule>(table, scalars, [&](const auto& entry, const Rule& rule, std::int64_t chunk) {
    const Store<rounding> store{entry.run, scalars->updates};
    go_over_chunk(entry.cut, chunk, UpdateWork<Rule, rounding>{entry.run, store, rule});
  });
}

[[nodiscard]] inline Cut<kTile> cut_run(const UpdateRun& run) {
  return cut<kTile>(run.elems, std::array{ConstValues{run.master}, ConstValues{run.parameter},
                                          ConstValues{run.remainder, DType::bf16}, run.gradient,
                                          ConstValues{run.first}, ConstValues{run.second}});
}

}  // namespace tessera::kernels::cuda
