#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "kernels/table.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera::kernels {

// The work of a kernel call: the FLOPs and bytes that its operation needs, in any implementation.
// An addition and a multiplication are one FLOP each, and so is an exponential or a root. Bytes
// count each array once. Names distinguish variants of a kernel that run at different rates.
// logged_table.cpp names for each kernel what computes its work from the arguments of a call.

using trace::KernelWork;

/// A kernel's name as an argument of a template.
struct KernelName {
  constexpr KernelName(const char* name) {
    std::ranges::copy(std::string_view{name}, text.begin());
  }
  std::array<char, 32> text{};
};

/// The elements of the array that a call computes with.
struct Elements {
  DType dtype;
  std::array<std::int64_t, 3> sizes;  ///< as in KernelWork
  double count;
};

[[nodiscard]] inline Elements in_row(DType dtype, std::int64_t elems) {
  return {dtype, {elems, 0, 0}, static_cast<double>(elems)};
}

[[nodiscard]] inline Elements in_rows(DType dtype, std::int64_t rows, std::int64_t columns) {
  return {dtype, {rows, columns, 0}, static_cast<double>(rows) * static_cast<double>(columns)};
}

// Kernels take arrays and sizes one by one, or in one struct, whose members tell its sizes.
[[nodiscard]] inline Elements elements_of(Values to, float, std::int64_t elems, Stream) {
  return in_row(to.dtype, elems);
}
[[nodiscard]] inline Elements elements_of(ConstValues x, Values, std::int64_t elems, Stream, GELU) {
  return in_row(x.dtype, elems);
}
[[nodiscard]] inline Elements elements_of(ConstValues x, ConstValues, Values, std::int64_t elems,
                                          Stream, GELU) {
  return in_row(x.dtype, elems);
}
[[nodiscard]] inline Elements elements_of(ConstValues x, ConstValues, Values, std::int64_t elems,
                                          Stream) {
  return in_row(x.dtype, elems);
}
[[nodiscard]] inline Elements elements_of(Values y, ConstValues, std::int64_t rows,
                                          std::int64_t columns, Stream) {
  return in_rows(y.dtype, rows, columns);
}
[[nodiscard]] inline Elements elements_of(ConstValues dy, Values, std::int64_t rows,
                                          std::int64_t columns, Write, Stream) {
  return in_rows(dy.dtype, rows, columns);
}
template <class Args>
[[nodiscard]] Elements elements_of(const Args& a, Stream) {
  if constexpr (requires { a.classes; }) {
    return in_rows(a.logits.dtype, a.rows, a.classes);
  } else if constexpr (requires { a.hidden; }) {
    return in_rows(a.y.dtype, a.batch * a.seq, a.hidden);
  } else if constexpr (requires { a.head_size; }) {
    return in_rows(a.x.dtype, a.batch * a.seq, a.heads * rotated_of(a));
  } else if constexpr (requires { a.sample_elems; }) {
    return in_rows(a.x.dtype, a.samples, a.sample_elems);
  } else if constexpr (requires { a.gate; }) {
    return in_rows(a.gate.dtype, a.rows, a.columns);
  } else {
    return in_rows(a.x.dtype, a.rows, a.columns);
  }
}

/// `flops` for each element, and `arrays` of that many elements that are read or written.
struct PerElement {
  KernelName name;
  int flops;
  int arrays;

  [[nodiscard]] KernelWork operator()(const auto&... args) const {
    const Elements all = elements_of(args...);
    return {.name = name.text.data(),
            .dtype = all.dtype,
            .flops = flops * all.count,
            .bytes = arrays * all.count * static_cast<double>(size_of(all.dtype)),
            .sizes = all.sizes};
  }
};

// Whether a call computes the second of a kernel's two variants.
[[nodiscard]] inline bool is_second(ConstValues, Values, std::int64_t, Stream, GELU form) {
  return form == GELU::exact;
}
[[nodiscard]] inline bool is_second(ConstValues, ConstValues, Values, std::int64_t, Stream,
                                    GELU form) {
  return form == GELU::exact;
}
[[nodiscard]] inline bool is_second(const RMSNormBackward& args, Stream) {
  return args.dx_write == Write::overwrite;
}
template <class Args>
[[nodiscard]] bool is_second(const Args& args, Stream) {
  return args.function == Gate::gelu_tanh;
}

/// A kernel with two variants.
struct PerVariant {
  PerElement first;
  PerElement second;

  [[nodiscard]] KernelWork operator()(const auto&... args) const {
    return is_second(args...) ? second(args...) : first(args...);
  }
};

/// The work of one run of an optimizer with `flops` for each element.
[[nodiscard]] KernelWork update_work(std::string_view name, const UpdateRun& run, int flops);

/// The sum of `work` over all items: one piece of work, named after the largest.
[[nodiscard]] KernelWork sum_of(const auto& items, const auto& work) {
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

/// The update of an optimizer's runs. Names distinguish the dtypes of moments and remainders.
struct PerUpdate {
  KernelName name;
  int flops;

  [[nodiscard]] KernelWork operator()(const auto& runs, const StepScalars*, Stream) const {
    return sum_of(runs,
                  [&](const auto& one) { return update_work(name.text.data(), one.run, flops); });
  }
};

// Kernels whose arrays have different dtypes or sizes. Attention counts the scores that are not
// masked, T (T + 1) / 2 per head without a window, and five products of them in backward where
// forward has two. It does not know where documents begin, and counts one.
[[nodiscard]] KernelWork accumulate_work(Values to, ConstValues from, std::int64_t elems, Stream);
[[nodiscard]] KernelWork cast_work(View to, ConstView from, Stream);
[[nodiscard]] KernelWork rounding_work(const UpdateRun& run, const StepScalars*, Stream);
[[nodiscard]] KernelWork norm_work(std::span<const NormTerm> terms, Stream);
[[nodiscard]] KernelWork finish_work(StepScalars*, const double*, const FinishStep& step, Stream);
[[nodiscard]] KernelWork product_work(const MatMul& p, Stream);
[[nodiscard]] KernelWork attention_work(const AttentionForward& args, Stream);
[[nodiscard]] KernelWork attention_gradient_work(const AttentionBackward& args, Stream);
[[nodiscard]] KernelWork embedding_gradient_work(const EmbeddingBackward& args, Stream);
[[nodiscard]] KernelWork nf4_quantise_work(const NF4Quantise& args, Stream);
[[nodiscard]] KernelWork nf4_quantise_absmax_work(const NF4QuantiseAbsmax& args, Stream);
[[nodiscard]] KernelWork nf4_dequantise_work(const NF4Dequantise& args, Stream);
[[nodiscard]] KernelWork int8_quantise_work(const Int8Quantise& args, Stream);
[[nodiscard]] KernelWork int8_dequantise_work(const Int8Dequantise& args, Stream);

}  // namespace tessera::kernels
