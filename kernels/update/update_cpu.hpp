#pragma once

#include <algorithm>

#include "device/cpu/parallel.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/update/stochastic.hpp"

namespace tessera::kernels::cpu {

/// The fp32 arrays that a rule's loop runs over.
struct FloatRun {
  float* weight;
  float* first;
  float* second;
  const float* gradient;
  std::int64_t elems;
};

/// Stores what a rule made of one array that is not fp32.
inline void store_rounded(const UpdateRun& run, Values to, const float* from, std::int64_t elems,
                          std::int64_t updates, RoundedArray array) {
  if (!to || to.dtype == DType::fp32) { return; }
  if (run.rounding == Rounding::nearest) { return narrow(to, from, elems); }
  narrow_stochastic(to, from, elems, StochasticKey::of(run, updates, array),
                    run.first_in_parameter);
}

/// One block of a run in mixed dtypes, by way of the first-level cache.
template <class Rule>
void update_block(const UpdateRun& block, std::int64_t updates, const Rule& rule) {
  Staged gradient;
  Staged first;
  Staged second;
  const FloatRun floats{block.master, block.first ? first.open(block.first, block.elems) : nullptr,
                        block.second ? second.open(block.second, block.elems) : nullptr,
                        gradient.read(block.gradient, block.elems), block.elems};
  rule(floats);
  store_rounded(block, block.first, floats.first, block.elems, updates, RoundedArray::first);
  store_rounded(block, block.second, floats.second, block.elems, updates, RoundedArray::second);
  store_rounded(block, block.parameter, block.master, block.elems, updates,
                RoundedArray::parameter);
}

/// Inside a task on `stream`: calls `rule(FloatRun)` on pieces that together are `run`, on all of
/// the stream's threads, and stores what is narrower than fp32. A run that is fp32 throughout is
/// one piece a thread, in place.
template <class Rule>
void update(const UpdateRun& run, std::int64_t updates, Stream stream, const Rule& rule) {
  const bool all_fp32 = !run.parameter && run.gradient.dtype == DType::fp32 &&
                        run.first.dtype == DType::fp32 && run.second.dtype == DType::fp32;
  parallel_for(stream, run.elems, kElementGrain, [&](const Chunk& chunk) {
    if (all_fp32) {
      const UpdateRun part = run.slice(chunk.first, chunk.size());
      rule(FloatRun{part.master, part.first.template as<float>(), part.second.template as<float>(),
                    part.gradient.template as<float>(), part.elems});
      return;
    }
    for (std::int64_t at = chunk.first; at < chunk.last; at += kStagedElems) {
      update_block(run.slice(at, std::min(kStagedElems, chunk.last - at)), updates, rule);
    }
  });
}

}  // namespace tessera::kernels::cpu
