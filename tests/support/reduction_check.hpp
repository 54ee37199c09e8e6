#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/rank_values.hpp"

namespace tessera::test {

/// The required sums of a communicator: the bits of a sum in rank order, or, if a library chooses
/// order and precision, the result of any order of additions in the tensor's dtype.
enum class SumOrder : std::uint8_t { ranks, any };

/// The unit roundoff and the largest value of a dtype.
struct Precision {
  double unit;
  double largest;
};
inline Precision precision_of(DType dtype) {
  switch (dtype) {
    case DType::fp64:
      return {0x1p-53, std::numeric_limits<double>::max()};
    case DType::fp32:
      return {0x1p-24, static_cast<double>(std::numeric_limits<float>::max())};
    case DType::bf16:
      return {0x1p-8, 0x1.FEp127};
    case DType::fp16:
      return {0x1p-11, 65504.0};
  }
  return {0, 0};
}

/// The error in `result`, the reduction of elements [first, first + elems) of `by_rank`; empty if
/// there is none. Integers, maxima and sums of at most one term are exact in any order.
///
/// Each of the N - 1 additions rounds a partial sum of at most S = sum |x| by at most u S (1 +
/// u)^N, so two orders differ by at most 2 N u S. Where S exceeds the dtype's range, some order may
/// overflow.
inline std::string reduction_problem(const HostTensor& result,
                                     const std::vector<HostTensor>& by_rank, ReduceOp op,
                                     SumOrder order, std::int64_t first = 0) {
  const HostTensor expected = slice(in_rank_order(by_rank, op), first, result.elems());
  if (result == expected) { return ""; }
  const auto [unit, largest] = precision_of(result.dtype());
  for (std::int64_t i = 0; i < result.elems(); ++i) {
    double size = 0;
    bool integers = true;
    for (const HostTensor& part : by_rank) {
      const double x = part.at(first + i);
      size += std::abs(x);
      integers = integers && x == std::round(x) && std::abs(x) <= 16;
    }
    const bool exact = order == SumOrder::ranks || op == ReduceOp::max || integers;
    const double bound = exact ? 0 : 2 * static_cast<double>(by_rank.size()) * unit * size;
    if (!exact && size > largest) { continue; }
    if (!(std::abs(result.at(i) - expected.at(i)) <= bound)) {
      return "element " + std::to_string(i) + " is " + std::to_string(result.at(i)) + ", not " +
             std::to_string(expected.at(i)) + " to within " + std::to_string(bound);
    }
  }
  // The only other difference is the sign of a zero, which is no error in any order.
  return order == SumOrder::ranks ? "other bits of the same numbers" : "";
}

}  // namespace tessera::test
