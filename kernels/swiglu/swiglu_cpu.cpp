#include <limits>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/support/exp.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/swiglu/swiglu.hpp"

namespace tessera::kernels::cpu {
namespace {

// If exp(-gate) is infinite the logistic function is 0, and its factor here stays finite.
constexpr float kMost = std::numeric_limits<float>::max();

template <class T>
void forward(const SwiGLUForward& args, const device::Chunk& rows) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const T* gates = args.gate.as<T>() + r * row;
    const T* ups = args.up.as<T>() + r * row;
    T* y = args.y.as<T>() + r * args.columns;
    for_lanes(args.columns, [=](std::int64_t c, auto lanes) {
      const Vec gate = lanes.read(gates + c);
      lanes.write(y + c, gate / (1.0F + exp(-gate)) * lanes.read(ups + c));
    });
  }
}

template <class T>
void backward(const SwiGLUBackward& args, const device::Chunk& rows) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const T* gates = args.gate.as<T>() + r * row;
    const T* ups = args.up.as<T>() + r * row;
    const T* dys = args.dy.as<T>() + r * args.columns;
    T* dgate = args.dgate.as<T>() + r * row;
    T* dup = args.dup.as<T>() + r * row;
    for_lanes(args.columns, [=](std::int64_t c, auto lanes) {
      const Vec gate = lanes.read(gates + c);
      const Vec up = lanes.read(ups + c);
      const Vec dy = lanes.read(dys + c);
      const Vec e = exp(-gate);
      const Vec logistic = 1.0F / (1.0F + e);
      const Vec rest = min(splat(kMost), e) * logistic;  // 1 - logistic without the cancellation
      lanes.write(dgate + c, dy * up * (logistic * (1.0F + gate * rest)));
      lanes.write(dup + c, dy * (gate * logistic));
    });
  }
}

}  // namespace

void swiglu_forward(const SwiGLUForward& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.y.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) { forward<T>(args, rows); });
    });
  });
}

void swiglu_backward(const SwiGLUBackward& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_type(args.dy.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) { backward<T>(args, rows); });
    });
  });
}

}  // namespace tessera::kernels::cpu
