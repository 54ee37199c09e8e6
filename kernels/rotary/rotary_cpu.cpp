#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/rotary/rotary.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

/// Rotates the heads of some tokens by their angles times `direction`, 1 or -1.
template <class T>
void turn_rows(const Rotary& args, const device::Chunk& rows, float direction) {
  const std::int64_t pairs = args.head_size / 2;
  const std::int64_t row = args.row_elems == 0 ? args.heads * args.head_size : args.row_elems;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const float* cosines = args.cosines + r % args.seq * pairs;
    const float* sines = args.sines + r % args.seq * pairs;
    for (std::int64_t h = 0; h < args.heads; ++h) {
      T* first = args.x.as<T>() + r * row + h * args.head_size;
      T* second = first + pairs;
      for_lanes(pairs, [=](std::int64_t i, auto lanes) {
        const Vec a = lanes.read(first + i);
        const Vec b = lanes.read(second + i);
        const Vec cosine = lanes.read(cosines + i);
        const Vec sine = direction * lanes.read(sines + i);
        lanes.write(first + i, a * cosine - b * sine);
        lanes.write(second + i, b * cosine + a * sine);
      });
    }
  }
}

void turn(const Rotary& args, float direction, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, args.batch * args.seq, row_grain(args.heads * args.head_size),
                           [&](const device::Chunk& rows) { turn_rows<T>(args, rows, direction); });
    });
  });
}

}  // namespace

void rotary_forward(const Rotary& args, Stream stream) {
  turn(args, 1.0F, stream);
}

void rotary_backward(const Rotary& args, Stream stream) {
  turn(args, -1.0F, stream);
}

}  // namespace tessera::kernels::cpu
