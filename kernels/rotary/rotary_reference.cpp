#include "kernels/rotary/rotary.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::reference {
namespace {

/// Rotates every pair by its angle times `direction`, 1 or -1.
void turn(const Rotary& args, float direction) {
  const std::int64_t pairs = args.head_size / 2;
  const std::int64_t row = args.row_elems == 0 ? args.heads * args.head_size : args.row_elems;
  for (std::int64_t b = 0; b < args.batch; ++b) {
    for (std::int64_t t = 0; t < args.seq; ++t) {
      for (std::int64_t h = 0; h < args.heads; ++h) {
        for (std::int64_t i = 0; i < pairs; ++i) {
          const std::int64_t at = (b * args.seq + t) * row + h * args.head_size + i;
          const float cosine = args.cosines[t * pairs + i];
          const float sine = direction * args.sines[t * pairs + i];
          const float first = element(args.x, at);
          const float second = element(args.x, at + pairs);
          set_element(args.x, at, first * cosine - second * sine);
          set_element(args.x, at + pairs, second * cosine + first * sine);
        }
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
