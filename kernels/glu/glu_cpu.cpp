#include <limits>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/gelu/gelu_cpu.hpp"
#include "kernels/glu/glu.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::cpu {
namespace {

class Silu {
 public:
  [[gnu::always_inline]] static Vec value(Vec gate) { return gate / (1.0F + exp(-gate)); }
  [[gnu::always_inline]] static Activated value_and_slope(Vec gate) {
    const Vec e = exp(-gate);
    const Vec logistic = 1.0F / (1.0F + e);
    const Vec rest = min(splat(kMost), e) * logistic;  // 1 - logistic without the cancellation
    return {gate * logistic, logistic * (1.0F + gate * rest)};
  }

 private:
  // If exp(-gate) is infinite the logistic function is 0, and its factor here stays finite.
  static constexpr float kMost = std::numeric_limits<float>::max();
};

template <class Function, class T>
void forward(const GLUForward& args, const device::Chunk& rows) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const T* gates = args.gate.as<T>() + r * row;
    const T* ups = args.up.as<T>() + r * row;
    T* y = args.y.as<T>() + r * args.columns;
    for_lanes(args.columns, [=](std::int64_t c, auto lanes) {
      const Vec gate = lanes.read(gates + c);
      lanes.write(y + c, Function::value(gate) * lanes.read(ups + c));
    });
  }
}

template <class Function, class T>
void backward(const GLUBackward& args, const device::Chunk& rows) {
  const std::int64_t row = args.row_elems == 0 ? args.columns : args.row_elems;
  for (std::int64_t r = rows.first; r < rows.last; ++r) {
    const T* gates = args.gate.as<T>() + r * row;
    const T* ups = args.up.as<T>() + r * row;
    const T* dys = args.dy.as<T>() + r * args.columns;
    T* dgate = args.dgate.as<T>() + r * row;
    T* dup = args.dup.as<T>() + r * row;
    for_lanes(args.columns, [=](std::int64_t c, auto lanes) {
      const Activated gate = Function::value_and_slope(lanes.read(gates + c));
      const Vec up = lanes.read(ups + c);
      const Vec dy = lanes.read(dys + c);
      lanes.write(dgate + c, dy * up * gate.slope);
      lanes.write(dup + c, dy * gate.value);
    });
  }
}

/// Calls body(Types<Function, T>{}).
template <class Body>
void with_function(Gate function, DType dtype, Body body) {
  with_type(dtype, [&]<class T>(std::type_identity<T>) {
    if (function == Gate::gelu_tanh) { return body(Types<GeluTanh, T>{}); }
    body(Types<Silu, T>{});
  });
}

}  // namespace

void glu_forward(const GLUForward& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_function(args.function, args.y.dtype, [&]<class Function, class T>(Types<Function, T>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) { forward<Function, T>(args, rows); });
    });
  });
}

void glu_backward(const GLUBackward& args, Stream stream) {
  device::enqueue(stream, [=] {
    with_function(args.function, args.dy.dtype, [&]<class Function, class T>(Types<Function, T>) {
      device::parallel_for(stream, args.rows, row_grain(args.columns),
                           [&](const device::Chunk& rows) { backward<Function, T>(args, rows); });
    });
  });
}

}  // namespace tessera::kernels::cpu
