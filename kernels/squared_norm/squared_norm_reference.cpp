#include <algorithm>

#include "kernels/squared_norm/squared_norm.hpp"
#include "kernels/support/element.hpp"

namespace tessera::kernels::reference {
namespace {

void add_squares(const NormTerm& term) {
  const auto& [x, elems, sum] = term;
  constexpr std::int64_t span = kSquaredNormSpan * kSquaredNormBlock;
  for (std::int64_t first = 0; first < elems; first += span) {
    const std::int64_t span_end = std::min(first + span, elems);
    double span_sum = 0.0;
    for (std::int64_t block = first; block < span_end; block += kSquaredNormBlock) {
      const std::int64_t end = std::min(block + kSquaredNormBlock, elems);
      double lanes[kSquaredNormLanes] = {};
      for (std::int64_t i = block; i < end; ++i) {
        const auto value = static_cast<double>(read(x, i));
        lanes[(i - block) % kSquaredNormLanes] += value * value;
      }
      double block_sum = 0.0;
      for (const double lane : lanes) { block_sum += lane; }
      span_sum += block_sum;
    }
    *sum += span_sum;
  }
}

}  // namespace

void squared_norm(std::span<const NormTerm> terms, Stream) {
  for (const NormTerm& term : terms) { add_squares(term); }
}

}  // namespace tessera::kernels::reference
