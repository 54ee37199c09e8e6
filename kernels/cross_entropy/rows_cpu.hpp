#pragma once

#include <algorithm>
#include <cstdint>

#include "device/cpu/parallel.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/softmax.hpp"
#include "kernels/support/typed.hpp"

// Operations of the CPU's cross entropies on a row of logits.
namespace tessera::kernels::cpu {

/// The sum of exp(x[i] - shift).
template <class T>
double exp_sum(const T* x, std::int64_t elems, float shift) {
  constexpr std::int64_t block = 1024;
  float unused[block];
  double total = 0.0;
  for (std::int64_t first = 0; first < elems; first += block) {
    total += exp_row(x + first, unused, std::min(block, elems - first), 1.0F, shift);
  }
  return total;
}

/// Turns a row into its gradient. A `target` outside [0, classes) belongs to another part.
template <class T>
void write_gradient(T* logits, std::int64_t classes, std::int64_t target, float gradient_scale,
                    float max, float factor) {
  const bool here = target >= 0 && target < classes;
  const float logit = here ? element(logits, target) : 0.0F;
  const float hit = exp(splat(logit - max))[0] * factor - gradient_scale;
  for_lanes(classes, [=](std::int64_t i, auto lanes) {
    lanes.write(logits + i, exp(lanes.read(logits + i) - max) * factor);
  });
  if (here) { set_element(logits, target, hit); }
}

/// The sum of row_loss(r) over the rows, in order: threads compute the losses of some rows before
/// one thread adds them.
template <class RowLoss>
double sum_of_losses(std::int64_t rows, std::int64_t classes, Stream stream, RowLoss row_loss) {
  constexpr std::int64_t span = 512;
  double losses[span];
  double sum = 0.0;
  for (std::int64_t first = 0; first < rows; first += span) {
    const std::int64_t some = std::min(span, rows - first);
    device::parallel_for(stream, some, row_grain(classes), [&](const device::Chunk& chunk) {
      for (std::int64_t i = chunk.first; i < chunk.last; ++i) { losses[i] = row_loss(first + i); }
    });
    for (std::int64_t i = 0; i < some; ++i) { sum += losses[i]; }
  }
  return sum;
}

}  // namespace tessera::kernels::cpu
