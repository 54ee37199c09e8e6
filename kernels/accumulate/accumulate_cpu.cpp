#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/accumulate/accumulate.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {
namespace {

void add_to(float* __restrict to, const float* __restrict from, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { to[i] += from[i]; }
}

void multiply(float* x, float factor, std::int64_t elems) {
  for (std::int64_t i = 0; i < elems; ++i) { x[i] *= factor; }
}

}  // namespace

void accumulate(float* to, const float* from, std::int64_t elems, Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, elems, kElementGrain, [=](const Chunk& chunk) {
      add_to(to + chunk.first, from + chunk.first, chunk.size());
    });
  });
}

void scale(float* to, float factor, std::int64_t elems, Stream stream) {
  enqueue(stream, [=] {
    parallel_for(stream, elems, kElementGrain,
                 [=](const Chunk& chunk) { multiply(to + chunk.first, factor, chunk.size()); });
  });
}

}  // namespace tessera::kernels::cpu
