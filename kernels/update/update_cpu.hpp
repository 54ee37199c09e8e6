#pragma once

#include <algorithm>

#include "device/cpu/parallel.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/master_parts.hpp"
#include "kernels/update/quantised_block_cpu.hpp"
#include "kernels/update/stochastic.hpp"

namespace tessera::kernels::cpu {

/// The fp32 arrays that a rule's loop processes.
struct FloatRun {
  float* weight;
  float* first;
  float* second;
  const float* gradient;
  std::int64_t elems;
};

/// Stores a rule's result for one array that is not fp32.
inline void store_rounded(const UpdateRun& run, Values to, const float* from, std::int64_t elems,
                          std::int64_t updates, RoundedArray array) {
  if (!to || to.dtype == DType::fp32) { return; }
  if (run.rounding == Rounding::nearest) {
    const bool parameter = array == RoundedArray::parameter;
    return store_part(to, parameter ? MasterPart::parameter : MasterPart::value, from, elems);
  }
  narrow_stochastic(to, from, elems, StochasticKey::of(run, updates, array),
                    run.first_in_parameter);
}

/// The weights of a block of up to kStagedElems: the masters in place, or joined in `copy`.
inline float* open_weights(const UpdateRun& block, float* copy) {
  if (block.remainder == nullptr) { return block.master; }
  join_masters(copy, block.parameter.as<bfloat16>(), block.remainder, block.elems);
  return copy;
}

/// Stores what is kept besides whole masters: the parameters, or both halves.
inline void store_weights(const UpdateRun& block, const float* weights, std::int64_t updates) {
  if (block.remainder == nullptr) {
    store_rounded(block, block.parameter, weights, block.elems, updates, RoundedArray::parameter);
    return;
  }
  store_part(block.parameter, MasterPart::parameter, weights, block.elems);
  store_part({block.remainder, DType::bf16}, MasterPart::remainder, weights, block.elems);
}

/// Updates one block of a run in mixed dtypes, staged in the first-level cache.
template <class Rule>
void update_block(const UpdateRun& block, std::int64_t updates, const Rule& rule) {
  Staged gradient;
  Staged first;
  Staged second;
  alignas(64) float weights[kStagedElems];
  const FloatRun floats{open_weights(block, weights),
                        block.first ? first.open(block.first, block.elems) : nullptr,
                        block.second ? second.open(block.second, block.elems) : nullptr,
                        gradient.read(block.gradient, block.elems), block.elems};
  rule(floats);
  store_rounded(block, block.first, floats.first, block.elems, updates, RoundedArray::first);
  store_rounded(block, block.second, floats.second, block.elems, updates, RoundedArray::second);
  store_weights(block, floats.weight, updates);
}

/// The same for a run with quantised moments, one of their blocks at a time.
template <class Rule>
void update_quantised_block(const UpdateRun& block, std::int64_t updates, const Rule& rule) {
  Staged gradient;
  QuantisedBlock moments{block};
  alignas(64) float weights[kMomentBlock];
  const FloatRun floats{open_weights(block, weights), moments.first(), moments.second(),
                        gradient.read(block.gradient, block.elems), block.elems};
  rule(floats);
  moments.store(block, updates);
  store_weights(block, floats.weight, updates);
}

/// Inside a task on `stream`: calls `rule(FloatRun)` on pieces that together cover `run`, on all of
/// the stream's threads, and stores the arrays that are narrower than fp32. A run entirely in fp32
/// is updated in place, one piece per thread.
template <class Rule>
void update(const UpdateRun& run, std::int64_t updates, Stream stream, const Rule& rule) {
  static_assert(kElementGrain % kMomentBlock == 0, "no thread may cut a block");
  const bool all_fp32 = !run.parameter && !run.first_quantised &&
                        run.gradient.dtype == DType::fp32 && run.first.dtype == DType::fp32 &&
                        run.second.dtype == DType::fp32;
  const auto update_part =
      run.first_quantised ? &update_quantised_block<Rule> : &update_block<Rule>;
  const std::int64_t staged = run.first_quantised ? kMomentBlock : kStagedElems;
  device::parallel_for(stream, run.elems, kElementGrain, [&](const device::Chunk& chunk) {
    if (all_fp32) {
      const UpdateRun part = run.slice(chunk.first, chunk.size());
      rule(FloatRun{part.master, part.first.template as<float>(), part.second.template as<float>(),
                    part.gradient.template as<float>(), part.elems});
      return;
    }
    for (std::int64_t at = chunk.first; at < chunk.last; at += staged) {
      update_part(run.slice(at, std::min(staged, chunk.last - at)), updates, rule);
    }
  });
}

}  // namespace tessera::kernels::cpu
