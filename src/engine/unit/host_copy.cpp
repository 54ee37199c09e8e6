#include "engine/unit/host_copy.hpp"

#include <cstring>

#include "kernels/support/convert.hpp"

namespace tessera::engine {

void HostCopy::write(View to, kernels::MasterPart part, std::span<const float> values) {
  const void* from = values.data();
  if (to.dtype != DType::fp32) {
    narrow_.resize(to.bytes());
    kernels::store_part({narrow_.data(), to.dtype}, part, values.data(), to.elems);
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

void HostCopy::read_joined(std::span<float> values, ConstView parameter, ConstView remainder,
                           bool on_host) {
  upper_.resize(values.size());
  lower_.resize(values.size());
  const Stream stream = world_.compute_stream();
  world_.device().copy_out(upper_.data(), parameter.data, parameter.bytes(), stream);
  if (on_host) {
    std::memcpy(lower_.data(), remainder.data, remainder.bytes());
  } else {
    world_.device().copy_out(lower_.data(), remainder.data, remainder.bytes(), stream);
  }
  stream.wait();
  kernels::join_masters(values.data(), upper_.data(), lower_.data(), std::ssize(values));
}

}  // namespace tessera::engine
