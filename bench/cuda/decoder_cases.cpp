#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/cuda/attention_case.hpp"
#include "bench/cuda/cases.hpp"
#include "bench/cuda/documents.hpp"
#include "bench/cuda/moving.hpp"

namespace tessera::bench {
namespace {

using kernels::Gate;
using kernels::RotaryPairs;

/// The rows of a norm: tokens, or a group of heads within each token's row of `group_elems`.
struct NormRows {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t group = 1;
  std::int64_t group_elems = 0;

  [[nodiscard]] std::int64_t elems() const {
    return group_elems == 0 ? rows * columns : rows / group * group_elems;
  }
};

KernelContest rms_norm_forward(Rig& rig, const NormRows& of) {
  const Numbers x{rig, DType::bf16, of.elems()}, y{rig, DType::bf16, of.elems()};
  const Numbers weight{rig, DType::bf16, of.columns}, kept{rig, DType::fp32, of.rows};
  return moving(rig, [=, &rig] {
    rig.table().rms_norm_forward({.x = x.values(),
                                  .weight = weight.values(),
                                  .y = y.values(),
                                  .inverse_rms = kept.as<float>(),
                                  .rows = of.rows,
                                  .columns = of.columns,
                                  .group = of.group,
                                  .x_group_elems = of.group_elems,
                                  .y_group_elems = of.group_elems},
                                 rig.stream());
  });
}

/// Heads' gradients are overwritten in place, tokens' are added to the residual's, as nn::Decoder
/// does it.
KernelContest rms_norm_backward(Rig& rig, const NormRows& of) {
  const bool heads = of.group > 1;
  const Numbers x{rig, DType::bf16, of.elems()}, dy{rig, DType::bf16, of.elems()};
  const Numbers dx = heads ? dy : Numbers{rig, DType::bf16, of.elems()};
  const Numbers weight{rig, DType::bf16, of.columns}, dweight{rig, DType::fp32, of.columns};
  const Numbers kept{rig, DType::fp32, of.rows};
  return moving(rig, [=, &rig] {
    rig.table().rms_norm_backward(
        {.x = x.values(),
         .weight = weight.values(),
         .inverse_rms = kept.as<float>(),
         .dy = dy.values(),
         .dx = dx.values(),
         .dweight = dweight.values(),
         .rows = of.rows,
         .columns = of.columns,
         .group = of.group,
         .x_group_elems = of.group_elems,
         .dy_group_elems = of.group_elems,
         .dx_group_elems = of.group_elems,
         .dx_write = heads ? kernels::Write::overwrite : kernels::Write::add},
        rig.stream());
  });
}

/// Queries and keys within rows that also have values.
KernelContest rotary(Rig& rig, const DecoderSizes& s, RotaryPairs pairs, bool backward,
                     bool documents) {
  const std::int64_t angles = s.seq * s.head_size / 2;
  std::vector<float> cosines(static_cast<std::size_t>(angles)), sines(cosines.size());
  kernels::rotary_angles(s.seq, s.head_size, 500'000.0, cosines, sines);
  const auto cosine = on_device(rig, cosines), sine = on_device(rig, sines);
  const auto first =
      documents ? on_device(rig, packed_documents(s.batch, s.seq, s.document).first_key) : nullptr;
  const Numbers x{rig, DType::bf16, s.tokens() * s.packed()};
  return moving(rig, [=, &rig] {
    const auto turn = backward ? rig.table().rotary_backward : rig.table().rotary_forward;
    turn({.x = x.values(),
          .cosines = static_cast<const float*>(cosine.get()),
          .sines = static_cast<const float*>(sine.get()),
          .batch = s.batch,
          .seq = s.seq,
          .heads = s.heads + s.kv_heads,
          .head_size = s.head_size,
          .row_elems = s.packed(),
          .pairs = pairs,
          .first_key = static_cast<const std::int32_t*>(first.get())},
         rig.stream());
  });
}

/// The halves of one product's output.
KernelContest glu_forward(Rig& rig, std::int64_t rows, std::int64_t columns, Gate function) {
  const Numbers wide{rig, DType::bf16, 2 * rows * columns}, y{rig, DType::bf16, rows * columns};
  return moving(rig, [=, &rig] {
    rig.table().glu_forward({.gate = wide.values(),
                             .up = wide.values().at(columns),
                             .y = y.values(),
                             .rows = rows,
                             .columns = columns,
                             .row_elems = 2 * columns,
                             .function = function},
                            rig.stream());
  });
}

KernelContest glu_backward(Rig& rig, std::int64_t rows, std::int64_t columns, Gate function) {
  const Numbers wide{rig, DType::bf16, 2 * rows * columns}, dy{rig, DType::bf16, rows * columns};
  const Numbers dwide{rig, DType::bf16, 2 * rows * columns};
  return moving(rig, [=, &rig] {
    rig.table().glu_backward({.gate = wide.values(),
                              .up = wide.values().at(columns),
                              .dy = dy.values(),
                              .dgate = dwide.values(),
                              .dup = dwide.values().at(columns),
                              .rows = rows,
                              .columns = columns,
                              .row_elems = 2 * columns,
                              .function = function},
                             rig.stream());
  });
}

KernelContest gelu_exact(Rig& rig, std::int64_t elems, bool backward) {
  const Numbers x{rig, DType::bf16, elems}, y{rig, DType::bf16, elems}, dx{rig, DType::bf16, elems};
  return moving(rig, [=, &rig] {
    constexpr auto kForm = kernels::GELU::exact;
    if (backward) {
      rig.table().gelu_backward(x.values(), y.values(), dx.values(), elems, rig.stream(), kForm);
    } else {
      rig.table().gelu_forward(x.values(), y.values(), elems, rig.stream(), kForm);
    }
  });
}

/// Beside a product, and beside attention of all keys with as many key heads as query heads.
KernelContest grouped_attention(Rig& rig, const AskedAttention& asked, std::int64_t square) {
  AttentionCase ours = attention_case(rig, asked);
  const kernels::AttentionShape& s = asked.shape;
  Case equal = attention_case(rig, {.shape = {s.batch, s.seq, s.heads, s.head_size},
                                    .backward = asked.backward,
                                    .lent = asked.backward})
                   .run;
  equal.name = "equal heads, all keys";
  return {{Work::flops, std::move(ours.run), {square_product(rig, square), std::move(equal)}},
          std::move(ours.work)};
}

std::vector<CudaContest> moving_contests(const DecoderSizes& s) {
  const NormRows tokens{s.tokens(), s.hidden()};
  const NormRows heads{s.tokens() * s.heads, s.head_size, s.heads, s.packed()};
  const std::string shape = fmt::format("{} tokens, {}", s.tokens(), s.hidden());
  const std::string wide = fmt::format("{} tokens, {}", s.tokens(), s.wide);
  const std::string turned =
      fmt::format("{} tokens, {} heads of {}", s.tokens(), s.heads + s.kv_heads, s.head_size);
  std::vector<CudaContest> all;
  const auto add = [&](std::string name, const std::string& at,
                       std::function<KernelContest(Rig&)> make, bool sample = true) {
    all.push_back({"decoder", std::move(name) + ", bf16", at, std::move(make), sample});
  };
  add("RMS norm forward", shape, [=](Rig& rig) { return rms_norm_forward(rig, tokens); });
  add("RMS norm backward", shape, [=](Rig& rig) { return rms_norm_backward(rig, tokens); });
  add("RMS norm of heads forward", shape, [=](Rig& rig) { return rms_norm_forward(rig, heads); });
  add("RMS norm of heads backward", shape, [=](Rig& rig) { return rms_norm_backward(rig, heads); });
  add("rotary forward", turned,
      [=](Rig& rig) { return rotary(rig, s, RotaryPairs::halves, false, false); });
  add(
      "rotary backward of neighbours in documents", turned,
      [=](Rig& rig) { return rotary(rig, s, RotaryPairs::neighbours, true, true); }, false);
  for (const auto& [name, gate] :
       {std::pair{"SwiGLU", Gate::silu}, std::pair{"GeGLU", Gate::gelu_tanh}}) {
    add(fmt::format("{} forward", name), wide,
        [=](Rig& rig) { return glu_forward(rig, s.tokens(), s.wide, gate); });
    add(fmt::format("{} backward", name), wide,
        [=](Rig& rig) { return glu_backward(rig, s.tokens(), s.wide, gate); });
  }
  add("GELU by the error function forward", wide,
      [=](Rig& rig) { return gelu_exact(rig, s.tokens() * s.wide, false); });
  add("GELU by the error function backward", wide,
      [=](Rig& rig) { return gelu_exact(rig, s.tokens() * s.wide, true); });
  return all;
}

}  // namespace

std::vector<CudaContest> decoder_contests(const CudaSizes& sizes) {
  const DecoderSizes& s = sizes.decoder;
  std::vector<CudaContest> all = moving_contests(s);
  const std::int64_t square = std::min<std::int64_t>(s.tokens(), 8192);
  const kernels::AttentionShape grouped{s.batch, s.seq, s.heads, s.head_size, s.kv_heads};
  kernels::AttentionShape window = grouped;
  window.window = s.window;
  struct Keys {
    std::string name;
    AskedAttention asked;
    bool sample = true;  // plans do not know where documents start
  };
  const std::vector<Keys> keys = {{"", {.shape = grouped}},
                                  {fmt::format(" in windows of {}", s.window), {.shape = window}},
                                  {fmt::format(" in documents of {}", s.document),
                                   {.shape = grouped, .document = s.document},
                                   false}};
  const std::string shape = fmt::format("{} sequences of {}, {} heads of {}, {} of keys", s.batch,
                                        s.seq, s.heads, s.head_size, s.kv_heads);
  for (Keys one : keys) {
    for (const bool backward : {false, true}) {
      one.asked.backward = backward;
      all.push_back(
          {"decoder",
           fmt::format("grouped attention {}{}, bf16", backward ? "backward" : "forward", one.name),
           shape,
           [asked = one.asked, square](Rig& rig) { return grouped_attention(rig, asked, square); },
           one.sample});
    }
  }
  return all;
}

}  // namespace tessera::bench
