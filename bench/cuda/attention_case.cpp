#include "bench/cuda/attention_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "bench/cuda/documents.hpp"
#include "bench/cuda/product_case.hpp"

namespace tessera::bench {
namespace {

/// The arrays of both directions of attention.
struct Heads {
  Heads(Rig& rig, const AskedAttention& asked)
      : shape{asked.shape},
        rows{shape.batch * shape.seq},
        qkv{rig, DType::bf16, rows * kernels::packed_of(shape)},
        y{rig, DType::bf16, rows * shape.heads * shape.head_size},
        dy{rig, DType::bf16, rows * shape.heads * shape.head_size},
        dqkv{rig, DType::bf16, rows * kernels::packed_of(shape)},
        log_sum_exp{rig, DType::fp32, rows * shape.heads, 1e-3F},
        lent_elems{asked.lent ? rig.table().attention_backward_workspace_elems(
                                    shape, DType::bf16, {.attention_gradients = asked.order})
                              : 0},
        workspace{
            rig, DType::fp32,
            std::max<std::int64_t>({rig.table().attention_workspace_elems(
                                        shape, DType::bf16, {.attention_gradients = asked.order}),
                                    lent_elems, std::int64_t{1}})} {}

  kernels::AttentionShape shape;
  std::int64_t rows;
  Numbers qkv, y, dy, dqkv, log_sum_exp;
  std::int64_t lent_elems;
  Numbers workspace;
  std::shared_ptr<void> documents;
};

}  // namespace

AttentionCase attention_case(Rig& rig, const AskedAttention& asked) {
  Heads heads{rig, asked};
  const kernels::AttentionShape shape = asked.shape;
  double needed = 1;
  if (asked.document > 0) {
    const Documents documents = packed_documents(shape.batch, shape.seq, asked.document);
    heads.documents = on_device(rig, documents.first_key);
    needed = documents.share_of_scores();
  }
  const auto* const first_key = static_cast<const std::int32_t*>(heads.documents.get());
  const std::function<void()> forward = [=, &rig] {
    rig.table().attention_forward({.qkv = heads.qkv.values(),
                                   .y = heads.y.values(),
                                   .log_sum_exp = heads.log_sum_exp.as<float>(),
                                   .workspace = heads.workspace.as<float>(),
                                   .shape = shape,
                                   .dropout = asked.dropout,
                                   .first_key = first_key},
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
                                    .workspace_elems = heads.lent_elems,
                                    .first_key = first_key},
                                   rig.stream());
  };
  const std::function<void()>& enqueue = asked.backward ? back : forward;
  trace::KernelWork work = rig.work_of(enqueue);
  return {rig.repeated("tessera", 0, work.flops * needed, enqueue), std::move(work)};
}

Case square_product(Rig& rig, std::int64_t size) {
  TrainingProduct square;
  square.like = {.a = {}, .b = {}, .c = {}, .m = size, .n = size, .k = size};
  Case limit = plain_product_contest(rig, square).contest.ours;
  limit.name = fmt::format("product of {} squared", size);
  return limit;
}

}  // namespace tessera::bench
