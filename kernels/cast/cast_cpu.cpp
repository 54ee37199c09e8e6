#include <algorithm>
#include <cstring>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/cast/cast.hpp"
#include "kernels/support/convert.hpp"
#include "tessera/base/error.hpp"

namespace tessera::kernels::cpu {
namespace {

constexpr std::int64_t kGrain = 64 * 1024;

void convert(Values to, ConstValues from, std::int64_t elems) {
  if (to.dtype == from.dtype) {
    std::memcpy(to.data, from.data, static_cast<std::size_t>(elems) * size_of(to.dtype));
  } else if (from.dtype == DType::fp32) {
    narrow(to, from.as<float>(), elems);
  } else if (to.dtype == DType::fp32) {
    widen(to.as<float>(), from, elems);
  } else {
    for (std::int64_t at = 0; at < elems; at += kStagedElems) {
      const std::int64_t count = std::min(kStagedElems, elems - at);
      Staged floats;
      narrow(to.at(at), floats.read(from.at(at), count), count);
    }
  }
}

}  // namespace

void cast(View to, ConstView from, Stream stream) {
  expects(to.elems == from.elems, "cast: both sides have as many elements");
  expects(to.dtype != DType::fp64 && from.dtype != DType::fp64, "cast: fp64 is not converted");
  device::enqueue(stream, [=] {
    device::parallel_for(stream, to.elems, kGrain, [=](const device::Chunk& chunk) {
      convert(Values{to.data, to.dtype}.at(chunk.first),
              ConstValues{from.data, from.dtype}.at(chunk.first), chunk.size());
    });
  });
}

}  // namespace tessera::kernels::cpu
