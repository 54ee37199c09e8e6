#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/support/cuda/cuda_tile.cuh"
#include "kernels/update/update_run.hpp"
#include "tessera/base/math.hpp"

// The runs of one launch. A model's step has about nine runs per layer, most of them of a few
// thousand elements: launching each separately would take longer than the small ones' memory
// traffic.
namespace tessera::kernels::cuda {

inline constexpr unsigned kUpdateThreads = 128;
/// Units that a block processes at once: a tile per warp, or a single element per thread.
inline constexpr int kChunkTiles = kUpdateThreads / 32;

[[nodiscard]] inline std::int64_t chunks_of(const Cut<kTile>& cut) noexcept {
  return std::max(ceil_div<std::int64_t>(cut.tiles, kChunkTiles),
                  ceil_div<std::int64_t>(cut.singles, kUpdateThreads));
}

/// Processes chunk `chunk` of a cut with the threads of a block. There is no loop: with one, the
/// compiler would keep the table's entry of the run in registers, half as many again.
template <class Work>
__device__ void go_over_chunk(const Cut<kTile>& cut, std::int64_t chunk, const Work& work) {
  const std::int64_t t = chunk * kChunkTiles + threadIdx.x / 32;
  if (t < cut.tiles) { work.finish(cut.tile(t), work.load(cut.tile(t))); }
  const std::int64_t i = chunk * kUpdateThreads + threadIdx.x;
  if (i < cut.singles) { work.one(cut.single(i)); }
}

/// Passed with the launch: kernel parameters may take up to 32,764 bytes.
template <class Hyper>
struct UpdateTable {
  struct Entry {
    UpdateRun run;
    Hyper hyper;
    Cut<kTile> cut;
  };
  static constexpr int kMost = 32'000 / static_cast<int>(sizeof(Entry) + sizeof(std::int64_t));

  Entry at[kMost];
  std::int64_t ends[kMost];  ///< running count of chunks, including this run
  int count = 0;

  __host__ __device__ std::int64_t chunks() const { return count == 0 ? 0 : ends[count - 1]; }
};

/// The grid for each_chunk.
template <class Hyper>
[[nodiscard]] Grid grid_for(const UpdateTable<Hyper>& table) noexcept {
  return {.blocks = static_cast<unsigned>(std::min(table.chunks(), tessera::cuda::kMostBlocks)),
          .threads = kUpdateThreads,
          .strides = true};
}

/// Calls visit(entry, rule, chunk), with all threads of the calling block, for each chunk of each
/// run that is assigned to it. Does nothing if StepScalars::apply is 0.
///
/// `Rule::Factors`, a struct of plain numbers, holds the factors of a step: each block computes
/// them once per run, by Rule::factors(hyper, scalars).
template <class Rule, class Visit>
__device__ void each_chunk(const UpdateTable<typename Rule::Hyper>& table,
                           const StepScalars* scalars, const Visit& visit) {
  if (scalars->apply == 0) { return; }
  __shared__ typename Rule::Factors factors[UpdateTable<typename Rule::Hyper>::kMost];
  for (int r = static_cast<int>(threadIdx.x); r < table.count; r += kUpdateThreads) {
    factors[r] = Rule::factors(table.at[r].hyper, *scalars);
  }
  __syncthreads();
  int run = 0;
  std::int64_t first = 0;
  for (std::int64_t chunk = blockIdx.x; chunk < table.chunks(); chunk += gridDim.x) {
    while (chunk >= table.ends[run]) { first = table.ends[run++]; }
    visit(table.at[run], Rule{table.at[run].hyper, factors[run]}, chunk - first);
  }
}

}  // namespace tessera::kernels::cuda
