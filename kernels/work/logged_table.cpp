#include "kernels/work/logged_table.hpp"

#include <chrono>
#include <utility>

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
  StreamState& state = *stream.state();
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

/// The kernel at `Member`, whose last argument is its stream.
template <auto Member, class Function>
struct Logged;

/// One specialisation for each number of arguments before the stream: a pack that is not last
/// cannot be deduced.
template <auto Member, class A>
struct Logged<Member, void(A, Stream)> {
  static void run(A a, Stream stream) {
    log_and_run(
        stream, [&] { return work_of(Of<Member>{}, a); },
        [&] { (cpu_table().*Member)(a, stream); });
  }
};
template <auto Member, class A, class B>
struct Logged<Member, void(A, B, Stream)> {
  static void run(A a, B b, Stream stream) {
    log_and_run(
        stream, [&] { return work_of(Of<Member>{}, a, b); },
        [&] { (cpu_table().*Member)(a, b, stream); });
  }
};
template <auto Member, class A, class B, class C>
struct Logged<Member, void(A, B, C, Stream)> {
  static void run(A a, B b, C c, Stream stream) {
    log_and_run(
        stream, [&] { return work_of(Of<Member>{}, a, b, c); },
        [&] { (cpu_table().*Member)(a, b, c, stream); });
  }
};
template <auto Member, class A, class B, class C, class D>
struct Logged<Member, void(A, B, C, D, Stream)> {
  static void run(A a, B b, C c, D d, Stream stream) {
    log_and_run(
        stream, [&] { return work_of(Of<Member>{}, a, b, c, d); },
        [&] { (cpu_table().*Member)(a, b, c, d, stream); });
  }
};

template <auto Member, class A, class B, class C, class D, class E>
struct Logged<Member, void(A, B, C, D, E, Stream)> {
  static void run(A a, B b, C c, D d, E e, Stream stream) {
    log_and_run(
        stream, [&] { return work_of(Of<Member>{}, a, b, c, d, e); },
        [&] { (cpu_table().*Member)(a, b, c, d, e, stream); });
  }
};

/// Sums of columns are logged as the kernel that computes them beside a product.
template <>
struct Logged<&Table::matmul, MatMulKernel> {
  static void run(const MatMul& p, Stream stream) {
    MatMul product = p;
    product.bias_gradient = {};
    log_and_run(
        stream, [&] { return work_of(Of<&Table::matmul>{}, product); },
        [&] { cpu_table().matmul(product, stream); });
    if (!p.bias_gradient) { return; }
    Logged<&Table::bias_gradient, BiasGradientKernel>::run(p.b, p.bias_gradient, p.k, p.n,
                                                           p.bias_gradient_write, stream);
  }
};

template <auto Member, class Function>
void set(Table& table, Function* Table::*) {
  table.*Member = Logged<Member, Function>::run;
}

template <auto... Members>
void set_all(Table& table) {
  (set<Members>(table, Members), ...);
}

// A kernel that is not named here is not logged.
Table make_table(DeviceKind kind) {
  Table table = cpu_table();
  set_all<&Table::accumulate, &Table::scale, &Table::cast, &Table::adamw, &Table::adam,
          &Table::lion, &Table::sgd, &Table::round_weights, &Table::squared_norm,
          &Table::finish_step, &Table::matmul, &Table::add_bias, &Table::bias_gradient,
          &Table::layer_norm_forward, &Table::layer_norm_backward, &Table::rms_norm_forward,
          &Table::rms_norm_backward, &Table::rotary_forward, &Table::rotary_backward,
          &Table::swiglu_forward, &Table::swiglu_backward, &Table::gelu_forward,
          &Table::gelu_backward, &Table::add, &Table::attention_forward, &Table::attention_backward,
          &Table::embedding_forward, &Table::embedding_backward, &Table::cross_entropy,
          &Table::vocab_statistics, &Table::vocab_cross_entropy, &Table::dropout>(table);
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
