#include "bench/cuda/cases.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/cuda/plain_product.hpp"

namespace tessera::bench {
namespace {

using kernels::MatMul;
using kernels::Transpose;

double times(std::int64_t a, double b) {
  return static_cast<double>(a) * b;
}

/// Half of `bytes` read and half written.
Case copy_case(Rig& rig, double bytes) {
  const auto half = std::max<std::size_t>(static_cast<std::size_t>(bytes / 2), 1);
  const auto from = device_bytes(rig, half);
  const auto to = device_bytes(rig, half);
  rig.device().fill(from.get(), 0x5A, half, rig.stream());
  return rig.repeated("device copy", 2 * static_cast<double>(half), 0,
                      [=, &rig] { rig.device().copy(to.get(), from.get(), half, rig.stream()); });
}

Contest moving(Rig& rig, double bytes, const std::function<void()>& enqueue) {
  return {Work::bytes, rig.repeated("tessera", bytes, 0, enqueue), {copy_case(rig, bytes)}};
}

/// fp32 masters; gradients and a copy of the parameters in `narrow`, unless that is fp32.
Contest adamw(Rig& rig, std::int64_t elems, DType narrow) {
  const Numbers master{rig, DType::fp32, elems}, gradient{rig, narrow, elems};
  const Numbers first{rig, DType::fp32, elems, 1e-3F}, second{rig, DType::fp32, elems, 0.0F};
  const bool copies = narrow != DType::fp32;
  const Numbers parameter{rig, narrow, copies ? elems : 1};
  kernels::StepScalars values;
  values.updates = 10;
  const auto scalars = device_bytes(rig, sizeof(values));
  rig.device().copy_in(scalars.get(), &values, sizeof(values), rig.stream());
  rig.stream().wait();
  const double bytes = 24.0 + static_cast<double>(size_of(narrow)) * (copies ? 2 : 1);
  return moving(rig, times(elems, bytes), [=, &rig] {
    rig.table().adamw({.master = master.as<float>(),
                       .parameter = copies ? parameter.values() : Values{},
                       .gradient = gradient.values(),
                       .first = first.values(),
                       .second = second.values(),
                       .elems = elems},
                      AdamW{}, static_cast<const kernels::StepScalars*>(scalars.get()),
                      rig.stream());
  });
}

Contest cast(Rig& rig, std::int64_t elems, DType from_dtype, DType to_dtype) {
  const Numbers from{rig, from_dtype, elems}, to{rig, to_dtype, elems};
  const auto bytes = static_cast<double>(size_of(from_dtype) + size_of(to_dtype));
  return moving(rig, times(elems, bytes), [=, &rig] {
    rig.table().cast({to.values().data, elems, to_dtype}, {from.values().data, elems, from_dtype},
                     rig.stream());
  });
}

Contest squared_norm(Rig& rig, std::int64_t elems, DType dtype) {
  const Numbers x{rig, dtype, elems};
  const auto sum = device_bytes(rig, sizeof(double));
  rig.device().fill(sum.get(), 0, sizeof(double), rig.stream());
  return moving(rig, times(elems, static_cast<double>(size_of(dtype))), [=, &rig] {
    rig.table().squared_norm(x.values(), elems, static_cast<double*>(sum.get()), rig.stream());
  });
}

Contest gelu_forward(Rig& rig, std::int64_t elems) {
  const Numbers x{rig, DType::bf16, elems}, y{rig, DType::bf16, elems};
  return moving(rig, times(elems, 4), [=, &rig] {
    rig.table().gelu_forward(x.values(), y.values(), elems, rig.stream());
  });
}

Contest gelu_backward(Rig& rig, std::int64_t elems) {
  const Numbers x{rig, DType::bf16, elems}, dy{rig, DType::bf16, elems};
  const Numbers dx{rig, DType::bf16, elems};
  return moving(rig, times(elems, 6), [=, &rig] {
    rig.table().gelu_backward(x.values(), dy.values(), dx.values(), elems, rig.stream());
  });
}

/// What both directions of a layer norm work on.
struct Norm {
  Norm(Rig& rig, std::int64_t rows, std::int64_t columns)
      : x{rig, DType::bf16, rows * columns},
        y{rig, DType::bf16, rows * columns},
        dx{rig, DType::bf16, rows * columns},
        weights{rig, DType::bf16, 2 * columns},
        gradients{rig, DType::fp32, 2 * columns},
        kept{rig, DType::fp32, 2 * rows} {}
  Numbers x, y, dx, weights, gradients, kept;
};

Contest layer_norm_forward(Rig& rig, std::int64_t rows, std::int64_t columns) {
  const Norm norm{rig, rows, columns};
  return moving(rig, times(rows * columns, 4), [=, &rig] {
    rig.table().layer_norm_forward({.x = norm.x.values(),
                                    .weight = norm.weights.values(),
                                    .bias = norm.weights.values().at(columns),
                                    .y = norm.y.values(),
                                    .mean = norm.kept.as<float>(),
                                    .inverse_std = norm.kept.as<float>() + rows,
                                    .rows = rows,
                                    .columns = columns},
                                   rig.stream());
  });
}

/// Reads x and dy, reads and writes dx.
Contest layer_norm_backward(Rig& rig, std::int64_t rows, std::int64_t columns) {
  const Norm norm{rig, rows, columns};
  return moving(rig, times(rows * columns, 8), [=, &rig] {
    rig.table().layer_norm_backward({.x = norm.x.values(),
                                     .weight = norm.weights.values(),
                                     .mean = norm.kept.as<float>(),
                                     .inverse_std = norm.kept.as<float>() + rows,
                                     .dy = norm.y.values(),
                                     .dx = norm.dx.values(),
                                     .dweight = norm.gradients.values(),
                                     .dbias = norm.gradients.values().at(columns),
                                     .rows = rows,
                                     .columns = columns},
                                    rig.stream());
  });
}

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t classes) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
  std::int64_t state = 7;
  for (std::int32_t& target : targets) {
    state = (state * 48'271) % 2'147'483'647;
    target = static_cast<std::int32_t>(state % classes);
  }
  return targets;
}

/// In place: each logit read once and written once, at best.
Contest cross_entropy(Rig& rig, std::int64_t rows, std::int64_t classes) {
  const Numbers logits{rig, DType::bf16, rows * classes};
  const std::vector<std::int32_t> values = some_targets(rows, classes);
  const std::size_t bytes = values.size() * sizeof(std::int32_t);
  const auto targets = device_bytes(rig, bytes);
  const auto loss = device_bytes(rig, sizeof(double));
  rig.device().copy_in(targets.get(), values.data(), bytes, rig.stream());
  rig.device().fill(loss.get(), 0, sizeof(double), rig.stream());
  rig.stream().wait();
  return moving(rig, times(rows * classes, 4), [=, &rig] {
    rig.table().cross_entropy({.logits = logits.values(),
                               .targets = static_cast<const std::int32_t*>(targets.get()),
                               .loss = static_cast<double*>(loss.get()),
                               .rows = rows,
                               .classes = classes,
                               .gradient_scale = 1.0F,
                               .loss_scale = 1.0},
                              rig.stream());
  });
}

double product_flops(const MatMul& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

/// A product of bf16 matrices, and C in `result`.
Contest product(Rig& rig, const MatMul& like, DType result) {
  const Numbers a{rig, DType::bf16, like.m * like.k}, b{rig, DType::bf16, like.k * like.n};
  const Numbers c{rig, result, like.m * like.n};
  MatMul ours = like;
  ours.a = a.values();
  ours.b = b.values();
  ours.c = c.values();
  const double flops = product_flops(ours);
  Contest contest{Work::flops,
                  rig.repeated("tessera", 0, flops,
                               [=, &rig] {
                                 (void)a, (void)b, (void)c;
                                 rig.table().matmul(ours, rig.stream());
                               }),
                  {}};
  if (const auto plain = plain_product(rig, ours)) {
    contest.limits.push_back(rig.repeated("plain cuBLASLt", 0, flops, plain));
  }
  return contest;
}

/// What both directions of attention work on.
struct Heads {
  Heads(Rig& rig, const kernels::AttentionShape& shape_)
      : shape{shape_},
        elems{shape.batch * shape.seq * shape.heads * shape.head_size},
        qkv{rig, DType::bf16, 3 * elems},
        y{rig, DType::bf16, elems},
        dy{rig, DType::bf16, elems},
        dqkv{rig, DType::bf16, 3 * elems},
        log_sum_exp{rig, DType::fp32, shape.batch * shape.heads * shape.seq, 1e-3F},
        workspace{rig, DType::fp32,
                  std::max<std::int64_t>(
                      rig.table().attention_workspace_elems(shape, DType::bf16, 1), 1)} {}

  kernels::AttentionShape shape;
  std::int64_t elems;
  Numbers qkv, y, dy, dqkv, log_sum_exp, workspace;

  /// Two products of T x T x head_size, of which the mask leaves half.
  [[nodiscard]] double forward_flops() const {
    return times(elems, 2 * static_cast<double>(shape.seq));
  }
};

/// What the device's matrix units reach.
Case square_product(Rig& rig, std::int64_t size) {
  Case limit =
      product(rig, {.a = {}, .b = {}, .c = {}, .m = size, .n = size, .k = size}, DType::bf16).ours;
  limit.name = fmt::format("product of {} squared", size);
  return limit;
}

Contest attention(Rig& rig, const kernels::AttentionShape& shape, bool backward,
                  std::int64_t limit_size) {
  const Heads heads{rig, shape};
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
                                    .shape = shape},
                                   rig.stream());
  };
  // Backward computes the scores again and has four more products: 5 to 2.
  const double flops = heads.forward_flops() * (backward ? 2.5 : 1.0);
  Case ours = backward ? rig.repeated("tessera", 0, flops, back)
                       : rig.repeated("tessera", 0, flops, forward);
  return {Work::flops, std::move(ours), {square_product(rig, limit_size)}};
}

/// A weight [in, out] of a layer.
struct Weight {
  const char* name;
  std::int64_t in;
  std::int64_t out;
};

void add_products(const CudaSizes& sizes, std::vector<CudaContest>& all) {
  const std::int64_t h = sizes.hidden(), rows = sizes.tokens();
  for (const Weight& w : {Weight{"c_attn", h, 3 * h},
                          {"c_proj", h, h},
                          {"c_fc", h, 4 * h},
                          {"mlp.c_proj", 4 * h, h},
                          {"wte", h, sizes.vocab}}) {
    // wte is stored as rows of `hidden`, the others as rows of `out`.
    const bool tied = std::string{w.name} == "wte";
    const auto add = [&](const char* pass, const MatMul& p, DType result) {
      all.push_back({"products", fmt::format("{} {}, {} x {} x {}", w.name, pass, p.m, p.n, p.k),
                     [=](Rig& rig) { return product(rig, p, result); }});
    };
    // The logits are made some rows at a time: as many as one sequence in four has.
    const std::int64_t m = tied ? std::max<std::int64_t>(rows / 4, 1) : rows;
    add("forward",
        {.a = {},
         .b = {},
         .c = {},
         .m = m,
         .n = w.out,
         .k = w.in,
         .transpose_b = tied ? Transpose::yes : Transpose::no},
        DType::bf16);
    add("dx",
        {.a = {},
         .b = {},
         .c = {},
         .m = m,
         .n = w.in,
         .k = w.out,
         .transpose_b = tied ? Transpose::no : Transpose::yes},
        DType::bf16);
    add("dW",
        {.a = {},
         .b = {},
         .c = {},
         .m = tied ? w.out : w.in,
         .n = tied ? w.in : w.out,
         .k = m,
         .transpose_a = Transpose::yes,
         .write = kernels::Write::add},
        DType::fp32);
  }
}

void add_memory(const CudaSizes& sizes, std::vector<CudaContest>& all) {
  const std::int64_t rows = sizes.tokens(), h = sizes.hidden(), wide = 4 * rows * h;
  const auto add = [&](const char* name, std::function<Contest(Rig&)> make) {
    all.push_back({"memory", name, std::move(make)});
  };
  add("cast fp32 to bf16", [=](Rig& rig) { return cast(rig, wide, DType::fp32, DType::bf16); });
  add("cast bf16 to fp32", [=](Rig& rig) { return cast(rig, wide, DType::bf16, DType::fp32); });
  add("squared norm, bf16", [=](Rig& rig) { return squared_norm(rig, wide, DType::bf16); });
  add("squared norm, fp32", [=](Rig& rig) { return squared_norm(rig, wide, DType::fp32); });
  add("GELU forward, bf16", [=](Rig& rig) { return gelu_forward(rig, wide); });
  add("GELU backward, bf16", [=](Rig& rig) { return gelu_backward(rig, wide); });
  add("layer norm forward, bf16", [=](Rig& rig) { return layer_norm_forward(rig, rows, h); });
  add("layer norm backward, bf16", [=](Rig& rig) { return layer_norm_backward(rig, rows, h); });
  const std::int64_t some = std::max<std::int64_t>(rows / 4, 1);
  add("cross entropy, bf16", [=](Rig& rig) { return cross_entropy(rig, some, sizes.vocab); });
}

}  // namespace

std::vector<CudaContest> cuda_contests(const CudaSizes& sizes) {
  std::vector<CudaContest> all;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    all.push_back({"adamw", fmt::format("AdamW, {} gradients", to_string(dtype)),
                   [=](Rig& rig) { return adamw(rig, sizes.parameters, dtype); }});
  }
  add_memory(sizes, all);
  const kernels::AttentionShape shape{sizes.batch, sizes.seq, sizes.heads, sizes.head_size};
  const std::int64_t square = std::min<std::int64_t>(sizes.tokens(), 8192);
  for (const bool backward : {false, true}) {
    all.push_back({"attention", backward ? "attention backward, bf16" : "attention forward, bf16",
                   [=](Rig& rig) { return attention(rig, shape, backward, square); }});
  }
  add_products(sizes, all);
  return all;
}

}  // namespace tessera::bench
