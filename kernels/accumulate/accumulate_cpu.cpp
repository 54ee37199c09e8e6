#include <algorithm>

#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/accumulate/accumulate.hpp"
#include "kernels/support/convert.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {
namespace {

void add_to(float* __restrict to, const float* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { to[i] += from[i]; }
}

void multiply(float* x, float factor, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { x[i] *= factor; }
}

/// Calls body(first, elems) for the whole chunk, or block by block where blocks are staged.
template <class Body>
void for_blocks(const device::Chunk& chunk, bool in_place, const Body& body) {
  const std::int64_t most = in_place ? chunk.size() : kStagedElems;
  for (std::int64_t at = chunk.first; at < chunk.last; at += most) {
    body(at, std::min(most, chunk.last - at));
  }
}

}  // namespace

void accumulate(Values to, ConstValues from, std::int64_t elems, Stream stream) {
  const bool in_place = to.dtype == DType::fp32 && from.dtype == DType::fp32;
  device::enqueue(stream, [=] {
    device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
      for_blocks(chunk, in_place, [=](std::int64_t first, std::int64_t count) {
        Staged sum;
        Staged more;
        add_to(sum.open(to.at(first), count), more.read(from.at(first), count), count);
        sum.write_back(to.at(first), count);
      });
    });
  });
}

void scale(Values to, float factor, std::int64_t elems, Stream stream) {
  device::enqueue(stream, [=] {
    device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
      for_blocks(chunk, to.dtype == DType::fp32, [=](std::int64_t first, std::int64_t count) {
        Staged product;
        multiply(product.open(to.at(first), count), factor, count);
        product.write_back(to.at(first), count);
      });
    });
  });
}

}  // namespace tessera::kernels::cpu
