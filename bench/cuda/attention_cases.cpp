#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "bench/cuda/cases.hpp"
#include "bench/cuda/moving.hpp"
#include "bench/cuda/product_case.hpp"

namespace tessera::bench {
namespace {

/// Backward with the workspace that plans count, or with as much as it has a use for, as nn::GPT
/// lends it.
enum class Direction : std::uint8_t { forward, backward, backward_lent };

/// What both directions of attention work on.
struct Heads {
  Heads(Rig& rig, const kernels::AttentionShape& shape_, Direction direction)
      : shape{shape_},
        elems{shape.batch * shape.seq * shape.heads * shape.head_size},
        qkv{rig, DType::bf16, 3 * elems},
        y{rig, DType::bf16, elems},
        dy{rig, DType::bf16, elems},
        dqkv{rig, DType::bf16, 3 * elems},
        log_sum_exp{rig, DType::fp32, shape.batch * shape.heads * shape.seq, 1e-3F},
        lent_elems{direction == Direction::backward_lent
                       ? rig.table().attention_backward_workspace_elems(shape, DType::bf16, 1)
                       : 0},
        workspace{
            rig, DType::fp32,
            std::max<std::int64_t>({rig.table().attention_workspace_elems(shape, DType::bf16, 1),
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

/// What the device's matrix units reach.
Case square_product(Rig& rig, std::int64_t size) {
  TrainingProduct square;
  square.like = {.a = {}, .b = {}, .c = {}, .m = size, .n = size, .k = size};
  Case limit = plain_product_contest(rig, square).ours;
  limit.name = fmt::format("product of {} squared", size);
  return limit;
}

Contest attention(Rig& rig, const kernels::AttentionShape& shape, Direction direction,
                  std::int64_t limit_size) {
  const Heads heads{rig, shape, direction};
  const auto forward = [=, &rig] {
    rig.table().attention_forward({.qkv = heads.qkv.values(),
                                   .y = heads.y.values(),
                                   .log_sum_exp = heads.log_sum_exp.as<float>(),
                                   .workspace = heads.workspace.as<float>(),
                                   .shape = shape},
                                  rig.stream());
  };
  forward();  // what backward reads
  const auto back = [=, &rig] {
    rig.table().attention_backward({.qkv = heads.qkv.values(),
                                    .y = heads.y.values(),
                                    .log_sum_exp = heads.log_sum_exp.as<float>(),
                                    .dy = heads.dy.values(),
                                    .dqkv = heads.dqkv.values(),
                                    .workspace = heads.workspace.as<float>(),
                                    .shape = shape,
                                    .workspace_elems = heads.lent_elems},
                                   rig.stream());
  };
  const bool backward = direction != Direction::forward;
  // Backward computes the scores again and has four more products: 5 to 2.
  const double flops = heads.forward_flops() * (backward ? 2.5 : 1.0);
  Case ours = backward ? rig.repeated("tessera", 0, flops, back)
                       : rig.repeated("tessera", 0, flops, forward);
  return {Work::flops, std::move(ours), {square_product(rig, limit_size)}};
}

}  // namespace

std::vector<CudaContest> attention_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  const kernels::AttentionShape shape{sizes.batch, sizes.seq, sizes.heads, sizes.head_size};
  const std::int64_t square = std::min<std::int64_t>(sizes.tokens(), 8192);
  constexpr std::pair<const char*, Direction> kRows[] = {
      {"attention forward, bf16", Direction::forward},
      {"attention backward, bf16", Direction::backward},
      {"attention backward, bf16, lent workspace", Direction::backward_lent}};
  for (const auto& [name, direction] : kRows) {
    all.push_back({"attention", name, [=, direction = direction](Rig& rig) {
                     return attention(rig, shape, direction, square);
                   }});
  }
  return all;
}

}  // namespace tessera::bench
