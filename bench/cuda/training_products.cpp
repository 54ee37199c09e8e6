#include "bench/cuda/training_products.hpp"

#include <fmt/format.h>

#include "kernels/support/row_multiple.hpp"
#include "tessera/nn/embedding.hpp"

namespace tessera::bench {
namespace {

using kernels::Epilogue;
using kernels::MatMul;
using kernels::Transpose;

/// A weight [in, out] of a layer with a bias, and what its products do besides multiplying.
struct Weight {
  const char* name;
  std::int64_t in;
  std::int64_t out;
  Epilogue forward = Epilogue::none;
  Epilogue backward = Epilogue::none;
  bool residual = false;
};

class Products {
 public:
  explicit Products(std::int64_t rows) : rows_{rows} {}

  void add(const Weight& w) {
    MatMul forward{.a = {}, .b = {}, .c = {}, .m = rows_, .n = w.out, .k = w.in};
    forward.epilogue = w.forward;
    MatMul dx{.a = {}, .b = {}, .c = {}, .m = rows_, .n = w.in, .k = w.out};
    dx.transpose_b = Transpose::yes;
    dx.epilogue = w.backward;
    MatMul dw{.a = {}, .b = {}, .c = {}, .m = w.in, .n = w.out, .k = rows_};
    dw.transpose_a = Transpose::yes;
    dw.write = kernels::Write::add;
    push(w.name, "forward", {.name = {}, .like = forward, .bias = true, .residual = w.residual});
    push(w.name, "dx", {.name = {}, .like = dx});
    push(w.name, "dW", {.name = {}, .like = dw, .result = DType::fp32});
    push(w.name, "dW with bias gradient",
         {.name = {}, .like = dw, .result = DType::fp32, .bias_gradient = true});
  }

  /// Adds the tied head, whose table is stored as rows of `hidden`.
  void add_head(std::int64_t hidden, std::int64_t table_rows, std::int64_t logits_row) {
    MatMul forward{.a = {}, .b = {}, .c = {}, .m = rows_, .n = table_rows, .k = hidden};
    forward.transpose_b = Transpose::yes;
    forward.c_stride = logits_row;
    MatMul dx{.a = {}, .b = {}, .c = {}, .m = rows_, .n = hidden, .k = table_rows};
    dx.a_stride = logits_row;
    MatMul dw{.a = {}, .b = {}, .c = {}, .m = table_rows, .n = hidden, .k = rows_};
    dw.transpose_a = Transpose::yes;
    dw.write = kernels::Write::add;
    dw.a_stride = logits_row;
    push("wte", "forward", {.name = {}, .like = forward});
    push("wte", "dx", {.name = {}, .like = dx});
    push("wte", "dW", {.name = {}, .like = dw, .result = DType::fp32});
  }

  [[nodiscard]] std::vector<TrainingProduct> all() && { return std::move(all_); }

 private:
  void push(const char* weight, const char* pass, TrainingProduct product) {
    product.name = fmt::format("{} {}", weight, pass);
    all_.push_back(std::move(product));
  }

  std::int64_t rows_;
  std::vector<TrainingProduct> all_;
};

}  // namespace

std::string TrainingProduct::shape() const {
  return fmt::format("{} x {} x {}", like.m, like.n, like.k);
}

TrainingProduct TrainingProduct::plain() const {
  TrainingProduct product{.name = name, .like = like, .result = result};
  product.like.epilogue = Epilogue::none;
  return product;
}

std::int64_t TrainingProduct::a_elems() const {
  return (like.transpose_a == Transpose::yes ? like.k : like.m) * like.a_row_elems();
}

std::vector<TrainingProduct> training_products(const nn::DecoderConfig& model, std::int64_t batch) {
  const std::int64_t h = model.hidden;
  Products products{batch * model.seq};
  products.add({.name = "c_attn", .in = h, .out = 3 * h});
  products.add({.name = "c_proj", .in = h, .out = h, .residual = true});
  products.add({.name = "c_fc", .in = h, .out = 4 * h, .forward = Epilogue::gelu});
  products.add({.name = "mlp.c_proj",
                .in = 4 * h,
                .out = h,
                .backward = Epilogue::gelu_gradient,
                .residual = true});
  const std::int64_t row = model.logits_row_elems();
  products.add_head(h, nn::head_rows(model.vocab, row, kernels::kCudaRowMultiple), row);
  return std::move(products).all();
}

}  // namespace tessera::bench
