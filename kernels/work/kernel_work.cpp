#include "kernels/work/kernel_work.hpp"

#include <string>
#include <utility>

namespace tessera::kernels {
namespace {

double count(std::int64_t a, std::int64_t b = 1, std::int64_t c = 1) {
  return static_cast<double>(a) * static_cast<double>(b) * static_cast<double>(c);
}

double bytes(DType dtype) {
  return static_cast<double>(size_of(dtype));
}

/// Bytes of an array that may be null.
template <class Array>
double bytes_of(const Array& array, double elems) {
  return array ? elems * bytes(array.dtype) : 0.0;
}

/// Separate name for loops over narrower arrays beside fp32 ones.
std::string of_dtype(std::string name, DType dtype) {
  if (dtype != DType::fp32) { name.append("_").append(to_string(dtype)); }
  return name;
}

/// One byte per element, and one scale per block.
double bytes_of(const QuantisedMoment& moment, double elems) {
  return moment ? elems + elems * sizeof(float) / kMomentBlock : 0.0;
}

/// The sum of `work` over all items.
template <class Items, class Work>
KernelWork sum_of(const Items& items, const Work& work) {
  KernelWork sum;
  std::int64_t elems = 0;
  double flops = 0;
  double bytes = 0;
  for (const auto& item : items) {
    const KernelWork one = work(item);
    elems += one.sizes[0];
    flops += one.flops;
    bytes += one.bytes;
    if (sum.name.empty() || one.sizes[0] > sum.sizes[0]) { sum = one; }
  }
  sum.flops = flops;
  sum.bytes = bytes;
  sum.sizes = {elems, 0, 0};
  return sum;
}

KernelWork update(const char* name, const UpdateRun& run, double flops) {
  const double n = count(run.elems);
  const double moments = 2 * (bytes_of(run.first, n) + bytes_of(run.second, n) +
                              bytes_of(run.first_quantised, n) + bytes_of(run.second_quantised, n));
  // A remainder and its parameter are both read and written; beside a whole master the parameter is
  // a copy.
  const bool halves = run.remainder != nullptr;
  const double weights = halves ? 8 * n : 8 * n + bytes_of(run.parameter, n);
  std::string named = of_dtype(name, run.first ? run.first.dtype : DType::fp32);
  if (run.first_quantised) { named += "_int8"; }
  if (halves) { named += "_remainder"; }
  return {.name = std::move(named),
          .dtype = DType::fp32,
          .flops = flops * n,
          .bytes = weights + moments + bytes_of(run.gradient, n),
          .sizes = {run.elems, 0, 0}};
}

template <class Runs>
KernelWork updates(const char* name, const Runs& runs, double flops) {
  return sum_of(runs, [&](const auto& one) { return update(name, one.run, flops); });
}

std::string product_name(const MatMul& p) {
  std::string name = "matmul_";
  name += p.transpose_a == Transpose::yes ? 't' : 'n';
  name += p.transpose_b == Transpose::yes ? 't' : 'n';
  if (p.bias) { name += "_bias"; }
  if (p.epilogue == Epilogue::gelu) { name += "_gelu"; }
  if (p.epilogue == Epilogue::gelu_gradient) { name += "_gelu_gradient"; }
  if (p.residual) { name += "_residual"; }
  return name;
}

KernelWork attention(const char* name, const AttentionShape& s, DType dtype, int products,
                     int arrays) {
  const double pairs = count(s.seq, s.seq + 1) / 2;
  const double heads = count(s.batch, s.heads);
  return {.name = name,
          .dtype = dtype,
          .flops = 2 * products * pairs * heads * count(s.head_size),
          .bytes = arrays * heads * count(s.seq, s.head_size) * bytes(dtype),
          .sizes = {s.batch * s.heads, s.seq, s.head_size}};
}

KernelWork rows_of(const char* name, DType dtype, double flops, double moved, std::int64_t rows,
                   std::int64_t columns) {
  return {.name = name,
          .dtype = dtype,
          .flops = flops * count(rows, columns),
          .bytes = moved,
          .sizes = {rows, columns, 0}};
}

KernelWork elementwise(const char* name, DType dtype, double flops, double moved,
                       std::int64_t elems) {
  return {.name = name,
          .dtype = dtype,
          .flops = flops * count(elems),
          .bytes = moved,
          .sizes = {elems, 0, 0}};
}

KernelWork rotary(const char* name, const Rotary& args) {
  const std::int64_t rows = args.batch * args.seq;
  const std::int64_t columns = args.heads * args.head_size;
  return rows_of(name, args.x.dtype, 3, 2 * count(rows, columns) * bytes(args.x.dtype), rows,
                 columns);
}

}  // namespace

KernelWork work_of(Of<&Table::accumulate>, Values to, ConstValues from, std::int64_t elems) {
  return elementwise("accumulate", to.dtype, 1,
                     count(elems) * (2 * bytes(to.dtype) + bytes(from.dtype)), elems);
}

KernelWork work_of(Of<&Table::scale>, Values to, float /*factor*/, std::int64_t elems) {
  return elementwise("scale", to.dtype, 1, 2 * count(elems) * bytes(to.dtype), elems);
}

KernelWork work_of(Of<&Table::cast>, View to, ConstView from) {
  return elementwise("cast", to.dtype, 0, static_cast<double>(to.bytes() + from.bytes()), to.elems);
}

KernelWork work_of(Of<&Table::adamw>, std::span<const RuledRun<AdamW>> runs, const StepScalars*) {
  return updates("adamw", runs, 16);
}

KernelWork work_of(Of<&Table::adam>, std::span<const RuledRun<Adam>> runs, const StepScalars*) {
  return updates("adam", runs, 16);
}

KernelWork work_of(Of<&Table::lion>, std::span<const RuledRun<Lion>> runs, const StepScalars*) {
  return updates("lion", runs, 10);
}

KernelWork work_of(Of<&Table::sgd>, std::span<const RuledRun<SGD>> runs, const StepScalars*) {
  return updates("sgd", runs, 6);
}

KernelWork work_of(Of<&Table::round_weights>, const UpdateRun& run, const StepScalars*) {
  const double n = run.parameter ? count(run.elems) : 0;
  return elementwise("round_weights", DType::fp32, 0, 4 * n + bytes_of(run.parameter, n),
                     run.elems);
}

KernelWork work_of(Of<&Table::squared_norm>, std::span<const NormTerm> terms) {
  return sum_of(terms, [](const NormTerm& term) {
    const DType dtype = term.x.dtype;
    return elementwise("squared_norm", dtype, 2, count(term.elems) * bytes(dtype), term.elems);
  });
}

KernelWork work_of(Of<&Table::finish_step>, StepScalars*, const double*, const FinishStep& step) {
  return elementwise("finish_step", DType::fp64, 1, 8 * count(step.norms), step.norms);
}

KernelWork work_of(Of<&Table::matmul>, const MatMul& p) {
  const double c = count(p.m, p.n) * bytes(p.c.dtype);
  const bool wide = p.a.dtype == DType::fp32 || p.b.dtype == DType::fp32;
  return {.name = product_name(p),
          .dtype = wide ? DType::fp32 : p.a.dtype,
          .flops = 2 * count(p.m, p.n, p.k),
          .bytes = count(p.m, p.k) * bytes(p.a.dtype) + count(p.k, p.n) * bytes(p.b.dtype) +
                   (p.write == Write::add ? 2 : 1) * c + (p.pre_gelu ? c : 0) +
                   (p.residual ? c : 0),
          .sizes = {p.m, p.n, p.k}};
}

KernelWork work_of(Of<&Table::add_bias>, Values y, ConstValues, std::int64_t rows,
                   std::int64_t columns) {
  return rows_of("add_bias", y.dtype, 1, 2 * count(rows, columns) * bytes(y.dtype), rows, columns);
}

KernelWork work_of(Of<&Table::bias_gradient>, ConstValues dy, Values, std::int64_t rows,
                   std::int64_t columns, Write) {
  return rows_of("bias_gradient", dy.dtype, 1, count(rows, columns) * bytes(dy.dtype), rows,
                 columns);
}

KernelWork work_of(Of<&Table::layer_norm_forward>, const LayerNormForward& args) {
  return rows_of("layer_norm_forward", args.x.dtype, 8,
                 2 * count(args.rows, args.columns) * bytes(args.x.dtype), args.rows, args.columns);
}

KernelWork work_of(Of<&Table::layer_norm_backward>, const LayerNormBackward& args) {
  return rows_of("layer_norm_backward", args.x.dtype, 14,
                 4 * count(args.rows, args.columns) * bytes(args.x.dtype), args.rows, args.columns);
}

KernelWork work_of(Of<&Table::rms_norm_forward>, const RMSNormForward& args) {
  return rows_of("rms_norm_forward", args.x.dtype, 4,
                 2 * count(args.rows, args.columns) * bytes(args.x.dtype), args.rows, args.columns);
}

KernelWork work_of(Of<&Table::rms_norm_backward>, const RMSNormBackward& args) {
  return rows_of("rms_norm_backward", args.x.dtype, 11,
                 4 * count(args.rows, args.columns) * bytes(args.x.dtype), args.rows, args.columns);
}

KernelWork work_of(Of<&Table::rotary_forward>, const Rotary& args) {
  return rotary("rotary_forward", args);
}

KernelWork work_of(Of<&Table::rotary_backward>, const Rotary& args) {
  return rotary("rotary_backward", args);
}

KernelWork work_of(Of<&Table::swiglu_forward>, const SwiGLUForward& args) {
  return rows_of("swiglu_forward", args.y.dtype, 5,
                 3 * count(args.rows, args.columns) * bytes(args.y.dtype), args.rows, args.columns);
}

KernelWork work_of(Of<&Table::swiglu_backward>, const SwiGLUBackward& args) {
  return rows_of("swiglu_backward", args.dy.dtype, 11,
                 5 * count(args.rows, args.columns) * bytes(args.dy.dtype), args.rows,
                 args.columns);
}

KernelWork work_of(Of<&Table::gelu_forward>, ConstValues x, Values, std::int64_t elems) {
  return elementwise("gelu_forward", x.dtype, 8, 2 * count(elems) * bytes(x.dtype), elems);
}

KernelWork work_of(Of<&Table::gelu_backward>, ConstValues x, ConstValues, Values,
                   std::int64_t elems) {
  return elementwise("gelu_backward", x.dtype, 14, 3 * count(elems) * bytes(x.dtype), elems);
}

KernelWork work_of(Of<&Table::add>, ConstValues a, ConstValues, Values, std::int64_t elems) {
  return elementwise("add", a.dtype, 1, 3 * count(elems) * bytes(a.dtype), elems);
}

KernelWork work_of(Of<&Table::attention_forward>, const AttentionForward& args) {
  return attention("attention_forward", args.shape, args.qkv.dtype, 2, 4);
}

KernelWork work_of(Of<&Table::attention_backward>, const AttentionBackward& args) {
  return attention("attention_backward", args.shape, args.qkv.dtype, 5, 8);
}

KernelWork work_of(Of<&Table::embedding_forward>, const EmbeddingForward& args) {
  const double moved = 3 * count(args.batch, args.seq, args.hidden) * bytes(args.y.dtype);
  return rows_of("embedding_forward", args.y.dtype, 1, moved, args.batch * args.seq, args.hidden);
}

KernelWork work_of(Of<&Table::embedding_backward>, const EmbeddingBackward& args) {
  const double n = count(args.batch, args.seq, args.hidden);
  const double tables = 2 * (bytes_of(args.dtoken_table, n) + bytes_of(args.dposition_table, n));
  return rows_of("embedding_backward", args.dy.dtype, 2, n * bytes(args.dy.dtype) + tables,
                 args.batch * args.seq, args.hidden);
}

KernelWork work_of(Of<&Table::cross_entropy>, const CrossEntropy& args) {
  const double moved = 2 * count(args.rows, args.classes) * bytes(args.logits.dtype);
  return rows_of("cross_entropy", args.logits.dtype, 6, moved, args.rows, args.classes);
}

KernelWork work_of(Of<&Table::vocab_statistics>, const VocabStatistics& args) {
  const double moved = count(args.rows, args.classes) * bytes(args.logits.dtype);
  return rows_of("cross_entropy_statistics", args.logits.dtype, 3, moved, args.rows, args.classes);
}

KernelWork work_of(Of<&Table::vocab_cross_entropy>, const VocabCrossEntropy& args) {
  const double moved = 2 * count(args.rows, args.classes) * bytes(args.logits.dtype);
  return rows_of("cross_entropy_parts", args.logits.dtype, 3, moved, args.rows, args.classes);
}

KernelWork work_of(Of<&Table::dropout>, const Dropout& args) {
  const double moved = 2 * count(args.samples, args.sample_elems) * bytes(args.x.dtype);
  return rows_of("dropout", args.x.dtype, 1, moved, args.samples, args.sample_elems);
}

}  // namespace tessera::kernels
