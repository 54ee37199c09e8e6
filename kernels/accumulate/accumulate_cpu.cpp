#include "device/cpu/host_task.hpp"
#include "kernels/accumulate/accumulate.hpp"

namespace tessera::kernels::cpu {
namespace {

void add_to(float* __restrict to, const float* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { to[i] += from[i]; }
}

}  // namespace

void accumulate(float* to, const float* from, std::int64_t elems, Stream stream) {
  enqueue(stream, [=] { add_to(to, from, elems); });
}

void scale(float* to, float factor, std::int64_t elems, Stream stream) {
  enqueue(stream, [=] {
    for (std::int64_t i = 0; i < elems; ++i) { to[i] *= factor; }
  });
}

}  // namespace tessera::kernels::cpu
