#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

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

/// Adds row_loss(r) of the rows that count to *args.loss, in order: threads compute the losses of
/// some rows before one thread adds them. Other rows become 0 if gradients are asked for.
template <class Args, class RowLoss>
void add_losses(const Args& args, float gradient_scale, Stream stream, RowLoss row_loss) {
  constexpr std::int64_t span = 512;
  double losses[span];
  double sum = 0.0;
  double counted = 0.0;
  const auto counts = [&](std::int64_t r) { return args.targets[r] >= 0; };
  const auto clear = [&](std::int64_t r) {
    with_type(args.logits.dtype, [&]<class T>(std::type_identity<T>) {
      std::fill_n(args.logits.template as<T>() + r * args.row_elems(), args.classes, T{});
    });
  };
  for (std::int64_t first = 0; first < args.rows; first += span) {
    const std::int64_t some = std::min(span, args.rows - first);
    device::parallel_for(stream, some, row_grain(args.classes), [&](const device::Chunk& chunk) {
      for (std::int64_t i = chunk.first; i < chunk.last; ++i) {
        if (counts(first + i)) {
          losses[i] = row_loss(first + i);
        } else if (gradient_scale != 0.0F) {
          clear(first + i);
        }
      }
    });
    for (std::int64_t i = 0; i < some; ++i) {
      if (!counts(first + i)) { continue; }
      sum += losses[i];
      counted += 1.0;
    }
  }
  *args.loss += args.loss_scale * sum;
  if (args.counted != nullptr) { *args.counted += counted; }
}

}  // namespace tessera::kernels::cpu
