#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
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
  SumOrder order = SumOrder::fixed;
  bool lent = false;  ///< backward gets as much workspace as it can use, as nn::GPT lends it
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

  /// Two products of T x T x head_size, of which the mask leaves half.
  [[nodiscard]] double forward_flops() const {
    return times(elems, 2 * static_cast<double>(shape.seq));
  }
};

/// What the device's matrix units achieve.
Case square_product(Rig& rig, std::int64_t size) {
  TrainingProduct square;
  square.like = {.a = {}, .b = {}, .c = {}, .m = size, .n = size, .k = size};
  Case limit = plain_product_contest(rig, square).ours;
  limit.name = fmt::format("product of {} squared", size);
  return limit;
}

Contest attention(Rig& rig, const Asked& asked, std::int64_t limit_size) {
  const Heads heads{rig, asked};
  const kernels::AttentionShape shape = asked.shape;
  const auto forward = [=, &rig] {
    rig.table().attention_forward({.qkv = heads.qkv.values(),
                                   .y = heads.y.values(),
                                   .log_sum_exp = heads.log_sum_exp.as<float>(),
                                   .workspace = heads.workspace.as<float>(),
                                   .shape = shape,
                                   .dropout = asked.dropout},
                                  rig.stream());
  };
  forward();  // computes what backward reads
  const auto back = [=, &rig] {
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
  // Backward recomputes the scores and has four more products: 5 to 2.
  const double flops = heads.forward_flops() * (asked.backward ? 2.5 : 1.0);
  Case ours = asked.backward ? rig.repeated("tessera", 0, flops, back)
                             : rig.repeated("tessera", 0, flops, forward);
  return {Work::flops, std::move(ours), {square_product(rig, limit_size)}};
}

}  // namespace

std::vector<CudaContest> attention_contests(const CudaSizes& sizes) {
  const kernels::AttentionShape shape{sizes.batch, sizes.seq, sizes.heads, sizes.head_size};
  kernels::AttentionShape odd =
      shape;  // cuDNN refuses this length with this many heads, so our own kernels run
  odd.seq -= 1;
  constexpr float p = 0.1F;
  const std::vector<Asked> asked = {
      {"attention forward, bf16", shape},
      {"attention backward, bf16", shape, true},
      {"attention backward, bf16, lent workspace", shape, true, 0.0F, SumOrder::fixed, true},
      {"attention backward in any order, bf16", shape, true, 0.0F, SumOrder::any},
      {"attention forward with dropout, bf16", shape, false, p},
      {"attention backward with dropout, bf16", shape, true, p},
      {fmt::format("attention forward, {} rows, bf16", odd.seq), odd},
      {fmt::format("attention backward, {} rows, bf16", odd.seq), odd, true}};
  const std::int64_t square = std::min<std::int64_t>(sizes.tokens(), 8192);
  std::vector<CudaContest> all;
  for (const Asked& one : asked) {
    all.push_back({"attention", one.name, [=](Rig& rig) { return attention(rig, one, square); }});
  }
  return all;
}

}  // namespace tessera::bench
