#include "tools/measure/operations.hpp"

#include <memory>
#include <vector>

#include "kernels/table.hpp"
#include "tools/measure/arrays.hpp"
#include "tools/measure/loops.hpp"

namespace tessera::bench {
namespace {

double times(std::int64_t a, double b) {
  return static_cast<double>(a) * b;
}

const kernels::Table& table() {
  return kernels::cpu_table();
}

std::shared_ptr<CallerStream> stream() {
  return std::make_shared<CallerStream>();
}

}  // namespace

Case peak_case() {
  constexpr std::int64_t rounds = 200'000;
  const Loops loops = loop_variants().back();
  return {"multiply-add peak", 0.0, times(rounds, loops.peak_flops), [=] {
            volatile float kept = loops.peak(rounds);
            static_cast<void>(kept);
          }};
}

Case triad_case(double bytes) {
  const auto elems = static_cast<std::int64_t>(bytes / 12.0);
  const Floats to = floats(elems, 0.0F);
  const Floats a = floats(elems, 1.0F);
  const Floats b = floats(elems, 1.0F);
  const Loops loops = loop_variants().front();
  return {"triad", times(elems, 12.0), times(elems, 2.0),
          [=] { loops.triad(to.get(), a.get(), b.get(), 0.5F, elems); }};
}

Contest squared_norm(std::int64_t elems) {
  const Floats x = noise(elems, 1);
  const auto sum = std::make_shared<double>(0.0);
  const auto on = stream();
  const Case ours{"squared_norm", times(elems, 4.0), times(elems, 2.0), [=] {
                    table().squared_norm(std::array{kernels::NormTerm{x.get(), elems, sum.get()}},
                                         on->get());
                  }};
  return {Work::bytes, ours, {triad_case(ours.bytes)}};
}

Contest layer_norm(Direction direction, std::int64_t rows, std::int64_t columns) {
  const std::int64_t elems = rows * columns;
  const Floats x = noise(elems, 1);
  const Floats y = noise(elems, 2);
  const Floats dx = floats(elems, 0.0F);
  const Floats parameters = noise(4 * columns, 3);
  const Floats kept = floats(2 * rows, 1.0F);
  const auto on = stream();
  const kernels::LayerNormForward forward{x.get(), parameters.get(), parameters.get() + columns,
                                          y.get(), kept.get(),       kept.get() + rows,
                                          rows,    columns};
  const kernels::LayerNormBackward backward{.x = x.get(),
                                            .weight = parameters.get(),
                                            .mean = kept.get(),
                                            .inverse_std = kept.get() + rows,
                                            .dy = y.get(),
                                            .dx = dx.get(),
                                            .dweight = parameters.get() + 2 * columns,
                                            .dbias = parameters.get() + 3 * columns,
                                            .rows = rows,
                                            .columns = columns};
  const std::vector<Floats> owned{x, y, dx, parameters, kept};
  // Forward reads x and writes y. Backward reads x and dy, and reads and writes dx.
  const Case ours = direction == Direction::forward
                        ? Case{"layer_norm forward", times(elems, 8.0), times(elems, 8.0),
                               [=] { (void)owned, table().layer_norm_forward(forward, on->get()); }}
                        : Case{"layer_norm backward", times(elems, 16.0), times(elems, 14.0), [=] {
                                 (void)owned, table().layer_norm_backward(backward, on->get());
                               }};
  return {Work::bytes, ours, {triad_case(ours.bytes)}};
}

Contest gelu(Direction direction, std::int64_t elems) {
  const Floats x = noise(elems, 1);
  const Floats dy = noise(elems, 2);
  const Floats y = floats(elems, 0.0F);
  const auto on = stream();
  const Case ours =
      direction == Direction::forward
          ? Case{"gelu forward", times(elems, 8.0), times(elems, 20.0),
                 [=] {
                   table().gelu_forward(x.get(), y.get(), elems, on->get(), kernels::GELU::tanh);
                 }}
          : Case{"gelu backward", times(elems, 12.0), times(elems, 28.0), [=] {
                   table().gelu_backward(x.get(), dy.get(), y.get(), elems, on->get(),
                                         kernels::GELU::tanh);
                 }};
  return {Work::bytes, ours, {triad_case(ours.bytes)}};
}

Contest cross_entropy(std::int64_t rows, std::int64_t classes) {
  const std::int64_t elems = rows * classes;
  const Floats logits = noise(elems, 1);
  const auto targets = std::make_shared<std::vector<std::int32_t>>(rows, 0);
  const auto loss = std::make_shared<double>(0.0);
  const auto on = stream();
  // The gradient of one run becomes the logits of the next: the time does not depend on the values.
  const Case ours{"cross_entropy", times(elems, 8.0), times(elems, 20.0), [=] {
                    table().cross_entropy({.logits = logits.get(),
                                           .targets = targets->data(),
                                           .loss = loss.get(),
                                           .rows = rows,
                                           .classes = classes,
                                           .gradient_scale = 1.0F,
                                           .loss_scale = 1.0},
                                          on->get());
                  }};
  return {Work::bytes, ours, {triad_case(ours.bytes)}};
}

Contest attention(Direction direction, const kernels::AttentionShape& shape) {
  const std::int64_t hidden = shape.heads * shape.head_size;
  const std::int64_t rows = shape.batch * shape.seq;
  const Floats qkv = noise(rows * 3 * hidden, 1);
  const Floats dqkv = floats(rows * 3 * hidden, 0.0F);
  const Floats y = floats(rows * hidden, 0.0F);
  const Floats dy = noise(rows * hidden, 2);
  const Floats sums = floats(rows * shape.heads, 0.0F);
  const Floats workspace = floats(table().attention_workspace_elems(shape, DType::fp32, {}), 0.0F);
  const auto on = stream();
  const auto run_forward = [=] {
    table().attention_forward({qkv.get(), y.get(), sums.get(), workspace.get(), shape}, on->get());
  };
  const auto run_backward = [=] {
    table().attention_backward(
        {qkv.get(), y.get(), sums.get(), dy.get(), dqkv.get(), workspace.get(), shape}, on->get());
  };
  run_forward();
  const double flops = times(rows * shape.seq, 4.0) * static_cast<double>(hidden);
  const double bytes = times(rows * hidden, 4.0);
  const Case ours = direction == Direction::forward
                        ? Case{"attention forward", 4 * bytes, flops, run_forward}
                        : Case{"attention backward", 8 * bytes, 2 * flops, run_backward};
  return {Work::flops, ours, {peak_case()}};
}

Contest matmul(std::int64_t m, std::int64_t n, std::int64_t k, kernels::Transpose transpose_a,
               kernels::Transpose transpose_b, kernels::Write write) {
  const Floats a = noise(m * k, 1);
  const Floats b = noise(k * n, 2);
  const Floats c = floats(m * n, 0.0F);
  const auto on = stream();
  const kernels::MatMul product{.a = a.get(),
                                .b = b.get(),
                                .c = c.get(),
                                .m = m,
                                .n = n,
                                .k = k,
                                .transpose_a = transpose_a,
                                .transpose_b = transpose_b,
                                .write = write};
  const std::vector<Floats> owned{a, b, c};
  const double bytes = times(m * k + k * n + m * n, 4.0);
  const Case ours{"matmul", bytes, times(m * n, 2.0) * static_cast<double>(k),
                  [=] { (void)owned, table().matmul(product, on->get()); }};
  return {Work::flops, ours, {peak_case()}};
}

}  // namespace tessera::bench
