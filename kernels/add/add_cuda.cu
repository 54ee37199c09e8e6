#include "kernels/add/add.hpp"
#include "kernels/support/cuda/cuda_element.cuh"

namespace tessera::kernels::cuda {
namespace {

template <class T>
__global__ void add_kernel(const T* a, const T* b, T* y, std::int64_t elems) {
  for (std::int64_t i = first_index(); i < elems; i += index_stride()) {
    y[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
  }
}

}  // namespace

void add(ConstValues a, ConstValues b, Values y, std::int64_t elems, Stream stream) {
  with_device_type(y.dtype, [&]<class T>(std::type_identity<T>) {
    launch(add_kernel<T>, grid_for(elems), cuda_stream(stream).open(), a.as<T>(), b.as<T>(),
           y.as<T>(), elems);
  });
}

}  // namespace tessera::kernels::cuda
