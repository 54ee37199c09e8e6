#include "kernels/work/logged_table.hpp"

#include <chrono>
#include <tuple>

#include "device/stream_state.hpp"
#include "kernels/support/row_multiple.hpp"
#include "kernels/work/kernel_work.hpp"

namespace tessera::kernels {
namespace {

double seconds_now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// Calls `run` and logs its `work`.
template <class WorkOf, class Run>
void log_and_run(Stream stream, const WorkOf& work, const Run& run) {
  device::StreamState& state = *stream.state();
  trace::WorkLog* const log = state.work_log();
  if (state.skips()) {
    if (log != nullptr) { log->kernel(state.log_number(), work()); }
    return;
  }
  if (log == nullptr) { return run(); }
  const double begin = seconds_now();
  run();
  log->kernel(state.log_number(), work(), seconds_now() - begin);
}

/// The kernel at `Member`, whose `work` is computed from its arguments.
template <auto Member, auto work, class Function>
struct Logged;
template <auto Member, auto work, class... Args>
struct Logged<Member, work, void(Args...)> {
  static void run(Args... args) {
    log_and_run(
        std::get<Stream&>(std::tie(args...)), [&] { return work(args...); },
        [&] { (cpu_table().*Member)(args...); });
  }
};

template <auto Member, auto work, class Function>
void log_member(Table& table, Function* Table::*) {
  table.*Member = Logged<Member, work, Function>::run;
}

template <auto Member, auto work>
void log(Table& table) {
  log_member<Member, work>(table, Member);
}

/// Sums of columns are logged as the kernel that computes them beside a product.
void logged_product(const MatMul& p, Stream stream) {
  MatMul product = p;
  product.bias_gradient = {};
  Logged<&Table::matmul, product_work, MatMulKernel>::run(product, stream);
  if (!p.bias_gradient) { return; }
  logged_table(DeviceKind::cpu)
      .bias_gradient(p.b, p.bias_gradient, p.k, p.n, p.bias_gradient_write, stream);
}

// A kernel that is not named here is not logged. The numbers are FLOPs and arrays in a PerElement,
// FLOPs in a PerUpdate. A PerVariant has a PerElement for each variant of a kernel.
Table make_table(DeviceKind kind) {
  Table table = cpu_table();
  table.matmul = logged_product;
  log<&Table::accumulate, accumulate_work>(table);
  log<&Table::scale, PerElement{"scale", 1, 2}>(table);
  log<&Table::cast, cast_work>(table);
  log<&Table::adamw, PerUpdate{"adamw", 16}>(table);
  log<&Table::adam, PerUpdate{"adam", 16}>(table);
  log<&Table::lion, PerUpdate{"lion", 10}>(table);
  log<&Table::sgd, PerUpdate{"sgd", 6}>(table);
  log<&Table::round_weights, rounding_work>(table);
  log<&Table::squared_norm, norm_work>(table);
  log<&Table::finish_step, finish_work>(table);
  log<&Table::add_bias, PerElement{"add_bias", 1, 2}>(table);
  log<&Table::bias_gradient, PerElement{"bias_gradient", 1, 1}>(table);
  log<&Table::layer_norm_forward, PerElement{"layer_norm_forward", 8, 2}>(table);
  log<&Table::layer_norm_backward, PerElement{"layer_norm_backward", 14, 4}>(table);
  log<&Table::rms_norm_forward, PerElement{"rms_norm_forward", 4, 2}>(table);
  log<&Table::rms_norm_backward,
      PerVariant{{"rms_norm_backward", 11, 4}, {"rms_norm_backward", 10, 3}}>(table);
  log<&Table::rotary_forward, PerElement{"rotary_forward", 3, 2}>(table);
  log<&Table::rotary_backward, PerElement{"rotary_backward", 3, 2}>(table);
  log<&Table::glu_forward, PerVariant{{"glu_forward", 5, 3}, {"geglu_forward", 9, 3}}>(table);
  log<&Table::glu_backward, PerVariant{{"glu_backward", 11, 5}, {"geglu_backward", 17, 5}}>(table);
  log<&Table::gelu_forward, PerVariant{{"gelu_forward", 8, 2}, {"gelu_exact_forward", 5, 2}}>(
      table);
  log<&Table::gelu_backward, PerVariant{{"gelu_backward", 14, 3}, {"gelu_exact_backward", 11, 3}}>(
      table);
  log<&Table::add, PerElement{"add", 1, 3}>(table);
  log<&Table::attention_forward, attention_work>(table);
  log<&Table::attention_backward, attention_gradient_work>(table);
  log<&Table::embedding_forward, PerElement{"embedding_forward", 1, 3}>(table);
  log<&Table::embedding_backward, embedding_gradient_work>(table);
  log<&Table::cross_entropy, PerElement{"cross_entropy", 6, 2}>(table);
  log<&Table::vocab_statistics, PerElement{"cross_entropy_statistics", 3, 1}>(table);
  log<&Table::vocab_cross_entropy, PerElement{"cross_entropy_parts", 3, 2}>(table);
  log<&Table::dropout, PerElement{"dropout", 1, 2}>(table);
  log<&Table::nf4_quantise, nf4_quantise_work>(table);
  log<&Table::nf4_quantise_absmax, nf4_quantise_absmax_work>(table);
  log<&Table::nf4_dequantise, nf4_dequantise_work>(table);
  log<&Table::int8_quantise, int8_quantise_work>(table);
  log<&Table::int8_dequantise, int8_dequantise_work>(table);
  if (kind == DeviceKind::cuda) {
    table.attention_workspace_elems = cuda::attention_workspace_elems;
    table.attention_backward_workspace_elems = cuda::attention_backward_workspace_elems;
  }
  table.row_multiple = row_multiple_of(kind);
  return table;
}

}  // namespace

const Table& logged_table(DeviceKind kind) {
  static const Table for_cpu = make_table(DeviceKind::cpu);
  static const Table for_cuda = make_table(DeviceKind::cuda);
  return kind == DeviceKind::cuda ? for_cuda : for_cpu;
}

}  // namespace tessera::kernels
