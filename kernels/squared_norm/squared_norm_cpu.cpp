#include <algorithm>
#include <cstddef>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/vec.hpp"
#include "tessera/base/math.hpp"

namespace tessera::kernels::cpu {
namespace {

// The sixteen lanes, in four registers of four doubles.
struct Lanes {
  DoubleVec quarter[4] = {};

  [[gnu::always_inline]] void add_squares(const float* x) noexcept {
    for (std::ptrdiff_t q = 0; q < 4; ++q) {
      HalfVec values;
      std::memcpy(&values, x + 4 * q, sizeof(values));
      const DoubleVec wide = __builtin_convertvector(values, DoubleVec);
      quarter[q] += wide * wide;
    }
  }
  [[nodiscard]] double sum() const noexcept {
    double sum = 0.0;
    for (const DoubleVec& four : quarter) {
      for (int l = 0; l < 4; ++l) { sum += four[l]; }
    }
    return sum;
  }
};

void add_squares(Lanes& lanes, const float* x, std::int64_t elems) {
  std::int64_t i = 0;
  for (; i + kSquaredNormLanes <= elems; i += kSquaredNormLanes) { lanes.add_squares(x + i); }
  if (i < elems) {
    float rest[kSquaredNormLanes] = {};  // a lane without an element adds 0, which changes no bit
    std::copy(x + i, x + elems, rest);
    lanes.add_squares(rest);
  }
}

double block_sum(ConstValues x, std::int64_t elems) {
  Lanes lanes;
  if (x.dtype == DType::fp32) {
    add_squares(lanes, x.as<float>(), elems);
    return lanes.sum();
  }
  static_assert(kStagedElems % kSquaredNormLanes == 0);
  for (std::int64_t at = 0; at < elems; at += kStagedElems) {
    const std::int64_t count = std::min(kStagedElems, elems - at);
    Staged floats;
    add_squares(lanes, floats.read(x.at(at), count), count);
  }
  return lanes.sum();
}

// Spans that threads sum before one thread adds their sums, in order.
constexpr std::int64_t kSpansAtOnce = 8;
constexpr std::int64_t kBlocksAtOnce = kSpansAtOnce * kSquaredNormSpan;
constexpr std::int64_t kElemsAtOnce = kBlocksAtOnce * kSquaredNormBlock;
constexpr std::int64_t kBlockGrain = 2;

/// Sums spans of at most kElemsAtOnce elements.
void sum_spans(ConstValues x, std::int64_t elems, double* spans, Stream stream) {
  double sums[kBlocksAtOnce];
  const std::int64_t blocks = ceil_div(elems, kSquaredNormBlock);
  device::parallel_for(stream, blocks, kBlockGrain, [&](const device::Chunk& chunk) {
    for (std::int64_t b = chunk.first; b < chunk.last; ++b) {
      const std::int64_t at = b * kSquaredNormBlock;
      sums[b] = block_sum(x.at(at), std::min(kSquaredNormBlock, elems - at));
    }
  });
  for (std::int64_t first = 0; first < blocks; first += kSquaredNormSpan) {
    const std::int64_t end = std::min(first + kSquaredNormSpan, blocks);
    double span_sum = 0.0;
    for (std::int64_t b = first; b < end; ++b) { span_sum += sums[b]; }
    *spans++ = span_sum;
  }
}

}  // namespace

void span_sums(ConstValues x, std::int64_t elems, double* sums, Stream stream) {
  device::enqueue(stream, [=] {
    for (std::int64_t at = 0; at < elems; at += kElemsAtOnce) {
      sum_spans(x.at(at), std::min(kElemsAtOnce, elems - at), sums + squared_norm_spans(at),
                stream);
    }
  });
}

void squared_norm(std::span<const NormTerm> terms, Stream stream) {
  for (const NormTerm& term : terms) {
    device::enqueue(stream, [=] {
      double spans[kSpansAtOnce];
      for (std::int64_t at = 0; at < term.elems; at += kElemsAtOnce) {
        const std::int64_t count = std::min(kElemsAtOnce, term.elems - at);
        sum_spans(term.x.at(at), count, spans, stream);
        for (std::int64_t s = 0; s < squared_norm_spans(count); ++s) { *term.sum += spans[s]; }
      }
    });
  }
}

}  // namespace tessera::kernels::cpu
