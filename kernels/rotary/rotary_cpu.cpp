#include <cstring>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/rotary/rotary.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/position_of.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {
namespace {

/// The angles of a head's pairs at some position; the sines are multiplied by `direction`, 1 or -1.
struct Angles {
  const float* cosines;
  const float* sines;
  float direction;
};

template <class T>
void turn_halves(T* head, std::int64_t pairs, const Angles& angles) {
  T* const second = head + pairs;
  for_lanes(pairs, [=](std::int64_t i, auto lanes) {
    const Vec a = lanes.read(head + i);
    const Vec b = lanes.read(second + i);
    const Vec cosine = lanes.read(angles.cosines + i);
    const Vec sine = angles.direction * lanes.read(angles.sines + i);
    lanes.write(head + i, a * cosine - b * sine);
    lanes.write(second + i, b * cosine + a * sine);
  });
}

/// from[0 .. 4), each twice.
[[gnu::always_inline]] inline Vec twice(const float* from, FullLanes) {
  HalfVec four;
  std::memcpy(&four, from, sizeof(four));
  return __builtin_shufflevector(four, four, 0, 0, 1, 1, 2, 2, 3, 3);
}
/// The same for lanes.count / 2 elements.
[[gnu::always_inline]] inline Vec twice(const float* from, SomeLanes lanes) {
  HalfVec four{};
  std::memcpy(&four, from, static_cast<std::size_t>(lanes.count / 2) * sizeof(float));
  return __builtin_shufflevector(four, four, 0, 0, 1, 1, 2, 2, 3, 3);
}

// a cos - b sin has the bits of a cos + b (-sin).
template <class T>
void turn_neighbours(T* head, std::int64_t pairs, const Angles& angles) {
  const float d = angles.direction;
  const Vec direction = {-d, d, -d, d, -d, d, -d, d};
  for_lanes(2 * pairs, [=](std::int64_t i, auto lanes) {
    const Vec ab = lanes.read(head + i);
    const Vec ba = __builtin_shufflevector(ab, ab, 1, 0, 3, 2, 5, 4, 7, 6);
    const Vec sine = direction * twice(angles.sines + i / 2, lanes);
    lanes.write(head + i, ab * twice(angles.cosines + i / 2, lanes) + ba * sine);
  });
}

/// Rotates the heads of some tokens by their angles times `direction`, 1 or -1.
template <class T>
void turn_rows(const Rotary& args, const device::Chunk& rows, float direction) {
  const std::int64_t pairs = rotated_of(args) / 2;
  const bool halves = args.pairs == RotaryPairs::halves;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const std::int64_t first = position_of(args.first_key, r, r % args.seq) * pairs;
    const Angles angles{args.cosines + first, args.sines + first, direction};
    for (std::int64_t h = 0; h < args.heads; ++h) {
      T* const head = args.x.as<T>() + r * row_elems_of(args) + h * args.head_size;
      if (halves) {
        turn_halves(head, pairs, angles);
      } else {
        turn_neighbours(head, pairs, angles);
      }
    }
  }
}

void turn(const Rotary& args, float direction, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.x.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, args.batch * args.seq, row_grain(args.heads * rotated_of(args)),
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
