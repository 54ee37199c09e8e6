#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/kernels/kernels.hpp"

// A block of Llama, which is not part of Tessera, built from the library's kernels:
//
//   m = x + attention(rotary(rms_norm(x) wqkv)) wo        y = m + swiglu(rms_norm(m) w13) w2
//
// It does not name a device: its kernels run on the device of the scope's stream.
namespace llama {

namespace kernels = tessera::kernels;
using tessera::ConstValues;
using tessera::Stream;
using tessera::Values;

struct Sizes {
  std::int64_t batch = 2;
  std::int64_t seq = 16;
  std::int64_t hidden = 32;
  std::int64_t heads = 2;
  std::int64_t wide = 48;  ///< of the SwiGLU
  std::int64_t vocab = 23;
  std::int64_t layers = 2;

  [[nodiscard]] std::int64_t rows() const { return batch * seq; }
  [[nodiscard]] kernels::AttentionShape attention() const {
    return {batch, seq, heads, hidden / heads};
  }
};

/// y [rows, out] = x [rows, in] weight.
inline void linear(const tessera::Scope& scope, const char* weight, ConstValues x, Values y,
                   std::int64_t rows) {
  const auto w = scope[weight];
  kernels::matmul({.a = x, .b = w, .c = y, .m = rows, .n = w.shape()[1], .k = w.shape()[0]},
                  scope.stream());
}

/// Adds the gradient of the weight, and writes dx [rows, in].
inline void linear_backward(const tessera::BackwardScope& scope, const char* weight, ConstValues x,
                            ConstValues dy, Values dx, std::int64_t rows) {
  const auto w = scope[weight];
  const std::int64_t in = w.shape()[0];
  const std::int64_t out = w.shape()[1];
  kernels::matmul({.a = x,
                   .b = dy,
                   .c = scope.grad(weight),
                   .m = in,
                   .n = out,
                   .k = rows,
                   .transpose_a = kernels::Transpose::yes,
                   .write = kernels::Write::add},
                  scope.stream());
  kernels::matmul({.a = dy,
                   .b = w,
                   .c = dx,
                   .m = rows,
                   .n = in,
                   .k = out,
                   .transpose_b = kernels::Transpose::yes},
                  scope.stream());
}

// [block]
class Block {
 public:
  /// What backward needs of forward. Memory of the caller's, on the rank's device.
  struct Saved {
    ConstValues x;         ///< [rows, hidden]
    Values normed;         ///< [rows, hidden]
    Values qkv;            ///< [rows, 3 hidden], queries and keys rotated
    Values mixed;          ///< [rows, hidden]
    Values middle;         ///< [rows, hidden]
    Values middle_normed;  ///< [rows, hidden]
    Values gate_up;        ///< [rows, 2 wide]
    Values activated;      ///< [rows, wide]
    float* inverse_rms;    ///< [2, rows]
    float* log_sum_exp;    ///< [batch, heads, seq]
    float* workspace;      ///< kernels::attention_workspace_elems; all blocks may share it
    const float* cosines;  ///< [seq, head_size / 2], as kernels::rotary_angles fills them
    const float* sines;
  };

  explicit Block(const Sizes& sizes) : s_{sizes} {}

  [[nodiscard]] std::vector<tessera::ParameterSpec> parameters() const {
    return {{.name = "attention_norm", .shape = {s_.hidden}},
            {.name = "wqkv", .shape = {s_.hidden, 3 * s_.hidden}},
            {.name = "wo", .shape = {s_.hidden, s_.hidden}},
            {.name = "ffn_norm", .shape = {s_.hidden}},
            {.name = "w13", .shape = {s_.hidden, 2 * s_.wide}},
            {.name = "w2", .shape = {s_.wide, s_.hidden}}};
  }

  /// y [rows, hidden], from saved.x.
  void forward(const tessera::Scope& scope, const Saved& saved, Values y) const {
    const Stream stream = scope.stream();
    const std::int64_t rows = s_.rows();
    norm(scope, "attention_norm", saved.x, saved.normed, saved.inverse_rms);
    linear(scope, "wqkv", saved.normed, saved.qkv, rows);
    kernels::rotary_forward(queries_and_keys(saved, saved.qkv), stream);
    kernels::attention_forward({.qkv = saved.qkv,
                                .y = saved.mixed,
                                .log_sum_exp = saved.log_sum_exp,
                                .workspace = saved.workspace,
                                .shape = s_.attention()},
                               stream);
    linear(scope, "wo", saved.mixed, saved.middle, rows);
    kernels::add(saved.x, saved.middle, saved.middle, rows * s_.hidden, stream);

    norm(scope, "ffn_norm", saved.middle, saved.middle_normed, saved.inverse_rms + rows);
    linear(scope, "w13", saved.middle_normed, saved.gate_up, rows);
    kernels::glu_forward({.gate = saved.gate_up,
                          .up = saved.gate_up.at(s_.wide),
                          .y = saved.activated,
                          .rows = rows,
                          .columns = s_.wide,
                          .row_elems = 2 * s_.wide},
                         stream);
    linear(scope, "w2", saved.activated, y, rows);
    kernels::add(saved.middle, y, y, rows * s_.hidden, stream);
  }

  /// `gradient` [rows, hidden] is that of y before and that of x after. `scratch`: scratch_elems.
  void backward(const tessera::BackwardScope& scope, const Saved& saved, Values gradient,
                Values scratch) const {
    const Stream stream = scope.stream();
    const std::int64_t rows = s_.rows();
    const Values dactivated = scratch;
    const Values dnormed = scratch;  // once dactivated has been used
    linear_backward(scope, "w2", saved.activated, gradient, dactivated, rows);
    const Values dgate_up = saved.gate_up;  // nobody needs the values any more
    kernels::glu_backward({.gate = saved.gate_up,
                           .up = saved.gate_up.at(s_.wide),
                           .dy = dactivated,
                           .dgate = dgate_up,
                           .dup = dgate_up.at(s_.wide),
                           .rows = rows,
                           .columns = s_.wide,
                           .row_elems = 2 * s_.wide},
                          stream);
    linear_backward(scope, "w13", saved.middle_normed, dgate_up, dnormed, rows);
    norm_backward(scope, "ffn_norm", saved.middle, saved.inverse_rms + rows, dnormed, gradient);

    const Values dmixed = scratch;
    const Values dqkv = scratch.at(rows * s_.hidden);
    linear_backward(scope, "wo", saved.mixed, gradient, dmixed, rows);
    kernels::attention_backward({.qkv = saved.qkv,
                                 .y = saved.mixed,
                                 .log_sum_exp = saved.log_sum_exp,
                                 .dy = dmixed,
                                 .dqkv = dqkv,
                                 .workspace = saved.workspace,
                                 .shape = s_.attention()},
                                stream);
    kernels::rotary_backward(queries_and_keys(saved, dqkv), stream);
    linear_backward(scope, "wqkv", saved.normed, dqkv, dnormed, rows);
    norm_backward(scope, "attention_norm", saved.x, saved.inverse_rms, dnormed, gradient);
  }

  [[nodiscard]] std::int64_t scratch_elems() const {
    return s_.rows() * std::max(4 * s_.hidden, s_.wide);
  }

 private:
  // They lie side by side in each row, before the values: heads are rotated alike.
  [[nodiscard]] kernels::Rotary queries_and_keys(const Saved& saved, Values qkv) const {
    return {.x = qkv,
            .cosines = saved.cosines,
            .sines = saved.sines,
            .batch = s_.batch,
            .seq = s_.seq,
            .heads = 2 * s_.heads,
            .head_size = s_.hidden / s_.heads,
            .row_elems = 3 * s_.hidden};
  }

  void norm(const tessera::Scope& scope, const char* weight, ConstValues x, Values y,
            float* inverse_rms) const {
    kernels::rms_norm_forward({.x = x,
                               .weight = scope[weight],
                               .y = y,
                               .inverse_rms = inverse_rms,
                               .rows = s_.rows(),
                               .columns = s_.hidden},
                              scope.stream());
  }

  /// Adds to dx, where the residual's gradient is.
  void norm_backward(const tessera::BackwardScope& scope, const char* weight, ConstValues x,
                     const float* inverse_rms, ConstValues dy, Values dx) const {
    kernels::rms_norm_backward({.x = x,
                                .weight = scope[weight],
                                .inverse_rms = inverse_rms,
                                .dy = dy,
                                .dx = dx,
                                .dweight = scope.grad(weight),
                                .rows = s_.rows(),
                                .columns = s_.hidden},
                               scope.stream());
  }

  Sizes s_;
};
// [/block]

}  // namespace llama
