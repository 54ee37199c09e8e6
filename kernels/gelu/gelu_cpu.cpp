#include "kernels/gelu/gelu_cpu.hpp"

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/gelu/gelu.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"

namespace tessera::kernels::cpu {
namespace {

template <class Form, class T>
void forward(const T* x, T* y, std::int64_t elems) {
  for_lanes(elems, [=](std::int64_t i, auto lanes) {
    lanes.write(y + i, Form::value(lanes.read(x + i)));
  });
}

template <class Form, class T>
void backward(const T* x, const T* dy, T* dx, std::int64_t elems) {
  for_lanes(elems, [=](std::int64_t i, auto lanes) {
    lanes.write(dx + i, lanes.read(dy + i) * Form::value_and_slope(lanes.read(x + i)).slope);
  });
}

/// Calls body(Types<Form, T>{}).
template <class Body>
void with_form(GELU form, DType dtype, Body body) {
  with_type(dtype, [&]<class T>(std::type_identity<T>) {
    if (form == GELU::exact) { return body(Types<GeluExact, T>{}); }
    body(Types<GeluTanh, T>{});
  });
}

}  // namespace

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream, GELU form) {
  expects(x.dtype == y.dtype, "gelu_forward: x and y are of one dtype");
  device::enqueue(stream, [=] {
    with_form(form, x.dtype, [&]<class Form, class T>(Types<Form, T>) {
      device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
        forward<Form>(x.as<T>() + chunk.first, y.as<T>() + chunk.first, chunk.size());
      });
    });
  });
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream,
                   GELU form) {
  expects(x.dtype == dy.dtype && x.dtype == dx.dtype,
          "gelu_backward: x, dy and dx are of one dtype");
  device::enqueue(stream, [=] {
    with_form(form, x.dtype, [&]<class Form, class T>(Types<Form, T>) {
      device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
        const std::int64_t at = chunk.first;
        backward<Form>(x.as<T>() + at, dy.as<T>() + at, dx.as<T>() + at, chunk.size());
      });
    });
  });
}

}  // namespace tessera::kernels::cpu
