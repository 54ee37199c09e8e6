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

/// One byte per element, and one scale per block.
double bytes_of(const QuantisedMoment& moment, double elems) {
  return moment ? elems + elems * sizeof(float) / kMomentBlock : 0.0;
}

KernelWork in_one_row(const char* name, DType dtype, double flops, double moved,
                      std::int64_t elems) {
  return {.name = name,
          .dtype = dtype,
          .flops = flops * count(elems),
          .bytes = moved,
          .sizes = {elems, 0, 0}};
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

/// CUDA computes both variants with kernels of its own, not with cuDNN's.
std::string attention_name(std::string name, const AttentionShape& s) {
  if (group_of(s) > 1) { name += "_grouped"; }
  if (window_of(s) < s.seq) { name += "_window"; }
  return name;
}

/// `arrays` counts those of the query heads, q, y and so on: there are as many of the key heads.
KernelWork attention(const char* name, const AttentionShape& s, DType dtype, int products,
                     int arrays) {
  const std::int64_t window = window_of(s);
  const double pairs = count(window, window + 1) / 2 + count(s.seq - window, window);
  const double heads = count(s.batch, s.heads);
  const double key_heads = count(s.batch, kv_heads_of(s));
  return {.name = attention_name(name, s),
          .dtype = dtype,
          .flops = 2 * products * pairs * heads * count(s.head_size),
          .bytes = arrays * (heads + key_heads) * count(s.seq, s.head_size) * bytes(dtype),
          .sizes = {s.batch * s.heads, s.seq, s.head_size}};
}

}  // namespace

KernelWork update_work(std::string_view name, const UpdateRun& run, int flops) {
  const double n = count(run.elems);
  const double moments = 2 * (bytes_of(run.first, n) + bytes_of(run.second, n) +
                              bytes_of(run.first_quantised, n) + bytes_of(run.second_quantised, n));
  // A remainder and its parameter are both read and written; beside a whole master the parameter is
  // a copy.
  const bool halves = run.remainder != nullptr;
  const double weights = halves ? 8 * n : 8 * n + bytes_of(run.parameter, n);
  std::string named{name};
  const DType moment = run.first ? run.first.dtype : DType::fp32;
  if (moment != DType::fp32) { named.append("_").append(to_string(moment)); }
  if (run.first_quantised) { named += "_int8"; }
  if (halves) { named += "_remainder"; }
  return {.name = std::move(named),
          .dtype = DType::fp32,
          .flops = flops * n,
          .bytes = weights + moments + bytes_of(run.gradient, n),
          .sizes = {run.elems, 0, 0}};
}

KernelWork accumulate_work(Values to, ConstValues from, std::int64_t elems, Stream) {
  return in_one_row("accumulate", to.dtype, 1,
                    count(elems) * (2 * bytes(to.dtype) + bytes(from.dtype)), elems);
}

KernelWork cast_work(View to, ConstView from, Stream) {
  return in_one_row("cast", to.dtype, 0, static_cast<double>(to.bytes() + from.bytes()), to.elems);
}

KernelWork rounding_work(const UpdateRun& run, const StepScalars*, Stream) {
  const double n = run.parameter ? count(run.elems) : 0;
  return in_one_row("round_weights", DType::fp32, 0, 4 * n + bytes_of(run.parameter, n), run.elems);
}

KernelWork norm_work(std::span<const NormTerm> terms, Stream) {
  return sum_of(terms, [](const NormTerm& term) {
    const DType dtype = term.x.dtype;
    return in_one_row("squared_norm", dtype, 2, count(term.elems) * bytes(dtype), term.elems);
  });
}

KernelWork finish_work(StepScalars*, const double*, const FinishStep& step, Stream) {
  return in_one_row("finish_step", DType::fp64, 1, 8 * count(step.norms), step.norms);
}

KernelWork product_work(const MatMul& p, Stream) {
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

KernelWork attention_work(const AttentionForward& args, Stream) {
  return attention("attention_forward", args.shape, args.qkv.dtype, 2, 2);
}

KernelWork attention_gradient_work(const AttentionBackward& args, Stream) {
  return attention("attention_backward", args.shape, args.qkv.dtype, 5, 4);
}

KernelWork embedding_gradient_work(const EmbeddingBackward& args, Stream) {
  const double n = count(args.batch, args.seq, args.hidden);
  const double tables = 2 * (bytes_of(args.dtoken_table, n) + bytes_of(args.dposition_table, n));
  return {.name = "embedding_backward",
          .dtype = args.dy.dtype,
          .flops = 2 * n,
          .bytes = n * bytes(args.dy.dtype) + tables,
          .sizes = {args.batch * args.seq, args.hidden, 0}};
}

// A code is found by one product and comparisons, which are no FLOPs.
KernelWork nf4_quantise_work(const NF4Quantise& args, Stream) {
  const double codes = count((args.elems + 1) / 2) + 4 * count(nf4_blocks(args.elems));
  const DType dtype = args.values.dtype;
  return in_one_row("nf4_quantise", dtype, 1, count(args.elems) * bytes(dtype) + codes, args.elems);
}

KernelWork nf4_quantise_absmax_work(const NF4QuantiseAbsmax& args, Stream) {
  const double moved = 5 * count(args.blocks) + 4 * count(nf4_groups(args.blocks));
  return in_one_row("nf4_quantise_absmax", DType::fp32, 2, moved, args.blocks);
}

KernelWork nf4_dequantise_work(const NF4Dequantise& args, Stream) {
  const std::int64_t blocks = nf4_blocks(args.elems);
  const double codes = count((args.elems + 1) / 2) + count(blocks) + 4 * count(nf4_groups(blocks));
  const DType dtype = args.to.dtype;
  return in_one_row("nf4_dequantise", dtype, 1, count(args.elems) * bytes(dtype) + codes,
                    args.elems);
}

KernelWork int8_quantise_work(const Int8Quantise& args, Stream) {
  const double codes = count(args.elems) + 4 * count(int8_blocks(args.elems));
  const DType dtype = args.values.dtype;
  return in_one_row("int8_quantise", dtype, 1, count(args.elems) * bytes(dtype) + codes,
                    args.elems);
}

KernelWork int8_dequantise_work(const Int8Dequantise& args, Stream) {
  const double codes = count(args.elems) + 4 * count(int8_blocks(args.elems));
  const DType dtype = args.to.dtype;
  return in_one_row("int8_dequantise", dtype, 1, count(args.elems) * bytes(dtype) + codes,
                    args.elems);
}

}  // namespace tessera::kernels
