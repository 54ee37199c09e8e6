#pragma once

#include <cstdint>
#include <vector>

#include "support/host_tensor.hpp"
#include "tessera/comm/batch.hpp"

namespace tessera::test {

enum class Values : std::uint8_t {
  integers,  ///< small: sums are exact in every dtype
  random,    ///< of both signs and many sizes: sums depend on their order
};

/// Element `i` of rank `rank`'s input in test data `salt`.
inline double rank_value(int rank, std::int64_t i, Values values, std::uint32_t salt = 0) {
  auto x = static_cast<std::uint32_t>(i) * 2654435761U ^
           static_cast<std::uint32_t>(rank + 1) * 40503U ^ salt * 97U;
  x ^= x >> 15U;
  x *= 2246822519U;
  x ^= x >> 13U;
  if (values == Values::integers) { return static_cast<double>(x % 17U) - 8.0; }
  const double mantissa = static_cast<double>(x % 2000003U) / 1000003.0 - 1.0;
  return mantissa * static_cast<double>(1U << (x >> 28U));
}

inline HostTensor rank_tensor(DType dtype, std::int64_t elems, int rank, Values values,
                              std::uint32_t salt = 0) {
  HostTensor tensor{dtype, elems};
  for (std::int64_t i = 0; i < elems; ++i) { tensor.set(i, rank_value(rank, i, values, salt)); }
  return tensor;
}

inline std::vector<HostTensor> rank_tensors(DType dtype, std::int64_t elems, int ranks,
                                            Values values, std::uint32_t salt = 0) {
  std::vector<HostTensor> all;
  for (int r = 0; r < ranks; ++r) { all.push_back(rank_tensor(dtype, elems, r, values, salt)); }
  return all;
}

/// ((x0 + x1) + x2) + ... in Sum, element by element.
template <class Sum>
Sum combine_in_order(const std::vector<HostTensor>& by_rank, std::int64_t i, ReduceOp op) {
  auto result = static_cast<Sum>(by_rank.front().at(i));
  for (std::size_t r = 1; r < by_rank.size(); ++r) {
    const auto x = static_cast<Sum>(by_rank[r].at(i));
    result = op == ReduceOp::sum ? result + x : (x > result ? x : result);
  }
  return result;
}

/// The expected bits of every reduction: fp32 sums (fp64 for fp64), rounded once.
inline HostTensor in_rank_order(const std::vector<HostTensor>& by_rank, ReduceOp op) {
  const HostTensor& first = by_rank.front();
  HostTensor result{first.dtype(), first.elems()};
  for (std::int64_t i = 0; i < first.elems(); ++i) {
    result.set(i, first.dtype() == DType::fp64 ? combine_in_order<double>(by_rank, i, op)
                                               : combine_in_order<float>(by_rank, i, op));
  }
  return result;
}

/// Elements [first, first + count) as a separate tensor.
inline HostTensor slice(const HostTensor& whole, std::int64_t first, std::int64_t count) {
  HostTensor part{whole.dtype(), count};
  for (std::int64_t i = 0; i < count; ++i) { part.set(i, whole.at(first + i)); }
  return part;
}

inline HostTensor concatenate(const std::vector<HostTensor>& parts) {
  std::int64_t elems = 0;
  for (const HostTensor& p : parts) { elems += p.elems(); }
  HostTensor whole{parts.front().dtype(), elems};
  std::int64_t at = 0;
  for (const HostTensor& p : parts) {
    for (std::int64_t i = 0; i < p.elems(); ++i) { whole.set(at++, p.at(i)); }
  }
  return whole;
}

}  // namespace tessera::test
