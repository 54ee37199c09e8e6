#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "bench/cuda/attention_case.hpp"
#include "bench/cuda/cases.hpp"

namespace tessera::bench {
namespace {

KernelContest attention(Rig& rig, const AskedAttention& asked, std::int64_t limit_size) {
  AttentionCase ours = attention_case(rig, asked);
  return {{Work::flops, std::move(ours.run), {square_product(rig, limit_size)}},
          std::move(ours.work)};
}

}  // namespace

std::vector<CudaContest> attention_contests(const CudaSizes& sizes) {
  const kernels::AttentionShape shape{sizes.batch, sizes.seq, sizes.heads, sizes.head_size};
  kernels::AttentionShape odd =
      shape;  // cuDNN refuses this length with this many heads, so our own kernels run
  odd.seq -= 1;
  constexpr float p = 0.1F;
  // The first two are what a profile takes as samples.
  const std::vector<std::pair<std::string, AskedAttention>> all_asked = {
      {"attention forward, bf16", {shape}},
      {"attention backward, bf16", {shape, true}},
      {"attention backward, bf16, lent workspace",
       {shape, true, 0.0F, device::SumOrder::fixed, true}},
      {"attention backward in any order, bf16", {shape, true, 0.0F, device::SumOrder::any}},
      {"attention forward with dropout, bf16", {shape, false, p}},
      {"attention backward with dropout, bf16", {shape, true, p}},
      {fmt::format("attention forward, {} rows, bf16", odd.seq), {odd}},
      {fmt::format("attention backward, {} rows, bf16", odd.seq), {odd, true}}};
  const std::int64_t square = std::min<std::int64_t>(sizes.tokens(), 8192);
  std::vector<CudaContest> all;
  for (const auto& [name, asked] : all_asked) {
    all.push_back({"attention", name, sizes.activations(),
                   [asked, square](Rig& rig) { return attention(rig, asked, square); },
                   all.size() < 2});
  }
  return all;
}

}  // namespace tessera::bench
