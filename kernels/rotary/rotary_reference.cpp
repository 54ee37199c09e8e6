#include "kernels/rotary/rotary.hpp"
#include "kernels/support/position_of.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

/// Rotates every pair by its angle times `direction`, 1 or -1.
void turn(const Rotary& args, float direction) {
  const std::int64_t pairs = rotated_of(args) / 2;
  const bool halves = args.pairs == RotaryPairs::halves;
  for (std::int64_t row = 0; row < args.batch * args.seq; ++row) {
    const std::int64_t position = position_of(args.first_key, row, row % args.seq);
    for (std::int64_t h = 0; h < args.heads; ++h) {
      const std::int64_t head = row * row_elems_of(args) + h * args.head_size;
      for (std::int64_t i = 0; i < pairs; ++i) {
        const std::int64_t a = head + (halves ? i : 2 * i);
        const std::int64_t b = halves ? a + pairs : a + 1;
        const float cosine = args.cosines[position * pairs + i];
        const float sine = direction * args.sines[position * pairs + i];
        const float first = element(args.x, a);
        const float second = element(args.x, b);
        set_element(args.x, a, first * cosine - second * sine);
        set_element(args.x, b, second * cosine + first * sine);
      }
    }
  }
}

}  // namespace

void rotary_forward(const Rotary& args, Stream) {
  turn(args, 1.0F);
}

void rotary_backward(const Rotary& args, Stream) {
  turn(args, -1.0F);
}

}  // namespace tessera::kernels::reference
