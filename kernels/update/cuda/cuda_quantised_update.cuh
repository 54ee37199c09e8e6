#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/update/cuda/cuda_update.cuh"
#include "kernels/update/moment_code.hpp"

// One pass over a run with quantised moments: AdamW moves 16 bytes per element, where fp32 takes
// 28; the moments take 2 of them each way.
//
// A block of codes is a warp's tile, with eight elements per thread, placed as in cuda_tile.cuh: a
// thread accesses its codes in two accesses of four bytes, and the warp reduces the largest
// magnitude. A thread draws two Philox counters for its eight elements, which both moments share.
namespace tessera::kernels::cuda {

static_assert(kMomentBlock == kTile);

/// A thread's eight codes: four neighbours in each word.
struct EightCodes {
  std::uint32_t at[2];
};

__device__ inline EightCodes load_codes(const QuantisedMoment& moment, std::int64_t tile) {
  EightCodes codes;
  for (int half = 0; half < 2; ++half) {
    codes.at[half] =
        *reinterpret_cast<const std::uint32_t*>(moment.values + tile + place(4 * half));
  }
  return codes;
}
__device__ inline void store_codes(const QuantisedMoment& moment, std::int64_t tile,
                                   const EightCodes& codes) {
  for (int half = 0; half < 2; ++half) {
    *reinterpret_cast<std::uint32_t*>(moment.values + tile + place(4 * half)) = codes.at[half];
  }
}

template <class Code>
__device__ Eight decode(const EightCodes& codes, float scale) {
  Eight values;
  for (int i = 0; i < 8; ++i) {
    values.at[i] = Code::decode((codes.at[i / 4] >> (8 * (i % 4))) & 0xFFU, scale);
  }
  return values;
}

/// Computes the codes and the scale of a block's values. All lanes of a warp call it together.
template <class Code, int Shift>
__device__ EightCodes encode(const Eight& values, const EightWords& words, float& scale) {
  std::uint32_t largest = 0;
  for (int i = 0; i < 8; ++i) { largest = std::max(largest, Code::magnitude(values.at[i])); }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    largest = std::max(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, lanes));
  }
  scale = Code::scale(largest);
  const float inverse = Code::inverse(scale);
  EightCodes codes{};
  for (int i = 0; i < 8; ++i) {
    const std::uint32_t random = (words.at[i] >> Shift) & 0xFFFFU;
    codes.at[i / 4] |= Code::encode(values.at[i], inverse, random) << (8 * (i % 4));
  }
  return codes;
}

/// How a warp accesses the elements of a whole block: 16 bytes at a time.
struct WholeBlock {
  __device__ static Eight load(const void* data, DType dtype, std::int64_t tile) {
    return unpack(load_tile(data, dtype, tile), dtype);
  }
  __device__ static EightCodes load(const QuantisedMoment& from, std::int64_t tile) {
    return load_codes(from, tile);
  }
  __device__ static void store(const QuantisedMoment& to, std::int64_t tile,
                               const EightCodes& codes) {
    store_codes(to, tile, codes);
  }
  __device__ static Eight weights(const UpdateRun& run, std::int64_t tile) {
    return unpack_weights(run, load_weights(run, tile));
  }
  template <Rounding rounding>
  __device__ static void store(const Store<rounding>& to, std::int64_t tile, const Eight& weights) {
    to.weights(tile, weights);
  }
};

/// Accesses a last or unaligned block element by element. Elements beyond its end are zero, and
/// every rule keeps them zero.
struct PartOfBlock {
  std::int64_t elems;

  template <class Visit>
  __device__ void each(std::int64_t tile, const Visit& visit) const {
    for (int i = 0; i < 8; ++i) {
      if (place(i) < elems) { visit(i, tile + place(i)); }
    }
  }
  __device__ Eight load(const void* data, DType dtype, std::int64_t tile) const {
    Eight values{};
    each(tile, [&](int i, std::int64_t at) { values.at[i] = load_one(data, dtype, at); });
    return values;
  }
  __device__ EightCodes load(const QuantisedMoment& from, std::int64_t tile) const {
    EightCodes codes{};
    each(tile, [&](int i, std::int64_t at) {
      codes.at[i / 4] |= std::uint32_t{from.values[at]} << (8 * (i % 4));
    });
    return codes;
  }
  __device__ void store(const QuantisedMoment& to, std::int64_t tile,
                        const EightCodes& codes) const {
    each(tile, [&](int i, std::int64_t at) {
      to.values[at] = static_cast<std::uint8_t>(codes.at[i / 4] >> (8 * (i % 4)));
    });
  }
  __device__ Eight weights(const UpdateRun& run, std::int64_t tile) const {
    Eight values{};
    each(tile, [&](int i, std::int64_t at) { values.at[i] = load_one_weight(run, at); });
    return values;
  }
  template <Rounding rounding>
  __device__ void store(const Store<rounding>& to, std::int64_t tile, const Eight& weights) const {
    each(tile, [&](int i, std::int64_t at) { to.weight(at, weights.at[i]); });
  }
};

/// A rule's pass over blocks: see UpdateWork.
template <class Rule, Rounding rounding>
struct QuantisedWork {
  UpdateRun run;
  Store<rounding> store;
  Rule rule;

  /// Updates the block that starts at element `tile`.
  template <class Access>
  __device__ void block(std::int64_t tile, const Access& access) const {
    const std::int64_t index = tile / kMomentBlock;
    Eight weight = access.weights(run, tile);
    const Eight gradient = access.load(run.gradient.data, run.gradient.dtype, tile);
    Eight first = decode<FirstCode>(access.load(run.first_quantised, tile),
                                    run.first_quantised.scales[index]);
    Eight second{};
    if constexpr (Rule::kMoments > 1) {
      second = decode<SecondCode>(access.load(run.second_quantised, tile),
                                  run.second_quantised.scales[index]);
    }
    for (int i = 0; i < 8; ++i) { rule(gradient.at[i], weight.at[i], first.at[i], second.at[i]); }
    access.store(store, tile, weight);
    const auto key = StochasticKey::of(run, store.updates, RoundedArray::quantised);
    const EightWords words = words_of(key, run.first_in_parameter + tile);
    keep<FirstCode, 0>(run.first_quantised, tile, first, words, access);
    if constexpr (Rule::kMoments > 1) {
      for (int i = 0; i < 8; ++i) { second.at[i] = sqrtf(second.at[i]); }
      keep<SecondCode, 16>(run.second_quantised, tile, second, words, access);
    }
  }

 private:
  template <class Code, int Shift, class Access>
  __device__ static void keep(const QuantisedMoment& moment, std::int64_t tile, const Eight& values,
                              const EightWords& words, const Access& access) {
    float scale = 0.0F;
    access.store(moment, tile, encode<Code, Shift>(values, words, scale));
    __syncwarp();  // all lanes have read the scale: shuffles do not order memory
    if (threadIdx.x % 32 == 0) { moment.scales[tile / kMomentBlock] = scale; }
  }
};

template <class Rule, Rounding rounding>
__global__ void __launch_bounds__(kUpdateThreads)
    quantised_kernel(const UpdateTable<typename Rule::Hyper> __grid_constant__ table,
                     const StepScalars* scalars) {
  each_chunk<Rule>(table, scalars, [&](const auto& entry, const Rule& rule, std::int64_t chunk) {
    const UpdateRun& run = entry.run;
    const QuantisedWork<Rule, rounding> work{run, {run, scalars->updates}, rule};
    const std::int64_t b = chunk * kChunkTiles + threadIdx.x / 32;
    if (b < entry.cut.tiles) {
      work.block(b * kTile, WholeBlock{});
    } else if (b * kTile < run.elems) {
      work.block(b * kTile, PartOfBlock{run.elems - b * kTile});
    }
  });
}

/// Cuts a run into tiles of whole blocks; single elements only if arrays are not aligned alike.
[[nodiscard]] inline Cut<kTile> cut_blocks(const UpdateRun& run) {
  const bool aligned = cut_run(run).head == 0 &&
                       reinterpret_cast<std::uintptr_t>(run.first_quantised.values) % 4 == 0 &&
                       reinterpret_cast<std::uintptr_t>(run.second_quantised.values) % 4 == 0;
  const std::int64_t whole = aligned ? run.elems / kTile : 0;
  return {0, whole, run.elems - whole * kTile};
}

/// The kernel of a rule for a run.
template <class Rule>
[[nodiscard]] auto kernel_of(const UpdateRun& run) {
  const bool nearest = run.rounding == Rounding::nearest;
  if constexpr (Rule::kMoments > 0) {
    if (run.first_quantised) {
      return nearest ? quantised_kernel<Rule, Rounding::nearest>
                     : quantised_kernel<Rule, Rounding::stochastic>;
    }
  }
  return nearest ? update_kernel<Rule, Rounding::nearest>
                 : update_kernel<Rule, Rounding::stochastic>;
}

/// Enqueues a step over the runs: one launch for consecutive runs that take the same kernel, as
/// many as fit into a table.
template <class Hyper, class KernelOf>
void step(std::span<const RuledRun<Hyper>> runs, const KernelOf& kernel_of_run,
          const StepScalars* scalars, Stream stream) {
  const cudaStream_t cuda = cuda_stream(stream).open();
  for (std::size_t next = 0; next < runs.size();) {
    const auto kernel = kernel_of_run(runs[next].run);
    UpdateTable<Hyper> table;
    for (; next < runs.size() && table.count < table.kMost; ++next) {
      const UpdateRun& run = runs[next].run;
      if (kernel_of_run(run) != kernel) { break; }
      if (run.elems == 0) { continue; }
      const bool blocks = static_cast<bool>(run.first_quantised);
      const Cut<kTile> cut = blocks ? cut_blocks(run) : cut_run(run);
      const std::int64_t chunks =
          blocks ? ceil_div<std::int64_t>(run.elems, kChunkTiles * kTile) : chunks_of(cut);
      table.ends[table.count] = table.chunks() + chunks;
      table.at[table.count++] = {run, runs[next].hyper, cut};
    }
    launch(kernel, grid_for(table), cuda, table, scalars);
  }
}

}  // namespace tessera::kernels::cuda
