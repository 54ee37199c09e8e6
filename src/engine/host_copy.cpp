#include "engine/host_copy.hpp"

#include "kernels/support/convert.hpp"

namespace tessera::engine {

void HostCopy::write(View to, std::span<const float> values) {
  const void* from = values.data();
  if (to.dtype != DType::fp32) {
    narrow_.resize(to.bytes());
    kernels::narrow({narrow_.data(), to.dtype}, values.data(), to.elems);
    from = narrow_.data();
  }
  world_.device().copy_in(to.data, from, to.bytes(), world_.compute_stream());
  world_.compute_stream().wait();
}

void HostCopy::read(std::span<float> values, ConstView from) {
  void* to = values.data();
  if (from.dtype != DType::fp32) {
    narrow_.resize(from.bytes());
    to = narrow_.data();
  }
  world_.device().copy_out(to, from.data, from.bytes(), world_.compute_stream());
  world_.compute_stream().wait();
  if (from.dtype != DType::fp32) {
    kernels::widen(values.data(), {narrow_.data(), from.dtype}, from.elems);
  }
}

}  // namespace tessera::engine
