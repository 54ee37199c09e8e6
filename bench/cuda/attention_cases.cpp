#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/moving.hpp"
#include "bench/cuda/product_case.hpp"

namespace tessera::bench {
namespace {

/// A requested attention in bf16, in one direction.
struct Asked {
  std::string name;
  kernels::AttentionShape shape;
  bool backward = false;
  float dropout = 0.0F;
  device::SumOrder order = device::SumOrder::fixed;
  bool lent = false;  ///< backward gets as much workspace as it can use, as nn::Decoder lends it
};

/// The arrays of both directions of attention.
struct Heads {
  Heads(Rig& rig, const Asked& asked)
      : shape{asked.shape},
        elems{shape.batch * shape.seq * shape.heads * shape.head_size},
        qkv{rig, DType::bf16, 3 * elems},
        y{rig, DType::bf16, elems},
        dy{rig, DType::bf16, elems},
        dqkv{rig, DType::bf16, 3 * elems},
        log_sum_exp{rig, DType::fp32, shape.batch * shape.heads * shape.seq, 1e-3F},
        lent_elems{asked.lent ? rig.table().attention_backward_workspace_elems(
                                    shape, DType::bf16, {.attention_gradients = asked.order})
                              : 0},
        workspace{
            rig, DType::fp32,
            std::max<std::int64_t>({rig.table().attention_workspace_elems(
                                        shape, DType::bf16, {.attention_gradients = asked.order}),
                                    lent_elems, std::int64_t{1}})} {}

  kernels::AttentionShape shape;
  std::int64_t elems;
  Numbers qkv, y, dy, dqkv, log_sum_exp;
  std::int64_t lent_elems;
  Numbers workspace;
};

/// What the device's matrix units achieve.
Case square_product(Rig& rig, std::int64_t size) {
  TrainingProduct square;
  square.like = {.a = {}, .b = {}, .c = {}, .m = size, .n = size, .k = size};
  Case limit = plain_product_contest(rig, square).contest.ours;
  limit.name = fmt::format("product of {} squared", size);
  return limit;
}

KernelContest attention(Rig& rig, const Asked& asked, std::int64_t limit_size) {
  const Heads heads{rig, asked};
  const kernels::AttentionShape shape = asked.shape;
  const std::function<void()> forward = [=, &rig] {
    rig.table().attention_forward({.qkv = heads.qkv.values(),
                                   .y = heads.y.values(),
                                   .log_sum_exp = heads.log_sum_exp.as<float>(),
                                   .workspace = heads.workspace.as<float>(),
                                   .shape = shape,
                                   .dropout = asked.dropout},
                                  rig.stream());
  };
  forward();  // computes what backward reads
  const std::function<void()> back = [=, &rig] {
    rig.stream().state()->compute_with({.table = &rig.table(), .attention_gradients = asked.order});
    rig.table().attention_backward({.qkv = heads.qkv.values(),
                                    .y = heads.y.values(),
                                    .log_sum_exp = heads.log_sum_exp.as<float>(),
                                    .dy = heads.dy.values(),
                                    .dqkv = heads.dqkv.values(),
                                    .workspace = heads.workspace.as<float>(),
                                    .shape = shape,
                                    .dropout = asked.dropout,
                                    .workspace_elems = heads.lent_elems},
                                   rig.stream());
  };
  const std::function<void()>& enqueue = asked.backward ? back : forward;
  trace::KernelWork work = rig.work_of(enqueue);
  Case ours = rig.repeated("tessera", 0, work.flops, enqueue);
  return {{Work::flops, std::move(ours), {square_product(rig, limit_size)}}, std::move(work)};
}

}  // namespace

std::vector<CudaContest> attention_contests(const CudaSizes& sizes) {
  const kernels::AttentionShape shape{sizes.batch, sizes.seq, sizes.heads, sizes.head_size};
  kernels::AttentionShape odd =
      shape;  // cuDNN refuses this length with this many heads, so our own kernels run
  odd.seq -= 1;
  constexpr float p = 0.1F;
  // The first two are what a profile takes as samples.
  const std::vector<Asked> asked = {
      {"attention forward, bf16", shape},
      {"attention backward, bf16", shape, true},
      {"attention backward, bf16, lent workspace", shape, true, 0.0F, device::SumOrder::fixed,
       true},
      {"attention backward in any order, bf16", shape, true, 0.0F, device::SumOrder::any},
      {"attention forward with dropout, bf16", shape, false, p},
      {"attention backward with dropout, bf16", shape, true, p},
      {fmt::format("attention forward, {} rows, bf16", odd.seq), odd},
      {fmt::format("attention backward, {} rows, bf16", odd.seq), odd, true}};
  const std::int64_t square = std::min<std::int64_t>(sizes.tokens(), 8192);
  std::vector<CudaContest> all;
  for (const Asked& one : asked) {
    all.push_back({"attention", one.name, sizes.activations(),
                   [=](Rig& rig) { return attention(rig, one, square); }, all.size() < 2});
  }
  return all;
}

}  // namespace tessera::bench
