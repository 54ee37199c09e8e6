#include "kernels/gelu/gelu.hpp"
#include "kernels/gelu/gelu_cuda.cuh"
#include "kernels/support/cuda/cuda_map.cuh"

namespace tessera::kernels::cuda {
namespace {

template <GELU form>
struct Gelu {
  __device__ float operator()(const float (&in)[1]) const {
    if constexpr (form == GELU::exact) {
      return GeluExact::value(in[0]);
    } else {
      return GeluTanh::value(in[0]);
    }
  }
};

template <GELU form>
struct GeluGradient {
  __device__ float operator()(const float (&in)[2]) const {
    if constexpr (form == GELU::exact) {
      return in[1] * GeluExact::slope(in[0]);
    } else {
      return in[1] * GeluTanh::value_and_slope(in[0]).slope;
    }
  }
};

}  // namespace

void gelu_forward(ConstValues x, Values y, std::int64_t elems, Stream stream, GELU form) {
  expects(x.dtype == y.dtype, "gelu_forward: x and y are of one dtype");
  with_device_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    const Inputs<T, 1> in{{x.as<T>()}};
    if (form == GELU::exact) { return map<Gelu<GELU::exact>>(in, y.as<T>(), elems, stream); }
    map<Gelu<GELU::tanh>>(in, y.as<T>(), elems, stream);
  });
}

void gelu_backward(ConstValues x, ConstValues dy, Values dx, std::int64_t elems, Stream stream,
                   GELU form) {
  expects(x.dtype == dy.dtype && x.dtype == dx.dtype,
          "gelu_backward: x, dy and dx are of one dtype");
  with_device_type(x.dtype, [&]<class T>(std::type_identity<T>) {
    const Inputs<T, 2> in{{x.as<T>(), dy.as<T>()}};
    if (form == GELU::exact) {
      return map<GeluGradient<GELU::exact>>(in, dx.as<T>(), elems, stream);
    }
    map<GeluGradient<GELU::tanh>>(in, dx.as<T>(), elems, stream);
  });
}

}  // namespace tessera::kernels::cuda
