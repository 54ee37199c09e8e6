#include <limits>

#include "device/cpu/host_task.hpp"
#include "kernels/cross_entropy/rows_cpu.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/vocab_cross_entropy/row_parts.hpp"
#include "kernels/vocab_cross_entropy/vocab_cross_entropy.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class T>
void row_statistics(const T* logits, std::int64_t classes, std::int64_t target, float* out) {
  constexpr float lowest = -std::numeric_limits<float>::infinity();
  const float max = row_max(logits, classes);
  out[0] = max;
  out[1] = static_cast<float>(exp_sum(logits, classes, max == lowest ? 0.0F : max));
  out[2] = target >= 0 && target < classes ? element(logits, target) : 0.0F;
}

// Returns the row's loss; turns the logits into their gradient unless its scale is 0.
template <class T>
double row_loss(const VocabCrossEntropy& args, std::int64_t r, float gradient_scale) {
  const RowParts row = row_parts(args.statistics, args.parts, args.rows, r);
  if (gradient_scale != 0.0F) {
    write_gradient(args.logits.as<T>() + r * args.row_elems(), args.classes,
                   args.targets[r] - args.first_class, gradient_scale, row.max,
                   static_cast<float>(static_cast<double>(gradient_scale) / row.sum));
  }
  return row.loss();
}

}  // namespace

void vocab_statistics(const VocabStatistics& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.logits.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, args.rows, row_grain(args.classes),
                           [&](const device::Chunk& rows) {
                             for (std::int64_t r = rows.first; r < rows.last; ++r) {
                               row_statistics(args.logits.as<T>() + r * args.row_elems(),
                                              args.classes, args.targets[r] - args.first_class,
                                              args.statistics + r * kRowStatistics);
                             }
                           });
    });
  });
}

void vocab_cross_entropy(const VocabCrossEntropy& args, Stream stream) {
  device::enqueue(stream, [=] {
    const float scale = args.dynamic_scale == nullptr ? 1.0F : *args.dynamic_scale;
    const float gradient_scale = args.gradient_scale * scale;
    add_losses(args, gradient_scale, stream, [&](std::int64_t r) {
      return with_type(args.logits.dtype, [&]<class T>(std::type_identity<T>) {
        return row_loss<T>(args, r, gradient_scale);
      });
    });
  });
}

}  // namespace tessera::kernels::cpu
