#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/add/add.hpp"
#include "kernels/support/grain.hpp"

namespace tessera::kernels::cpu {

void add(const float* a, const float* b, float* y, std::int64_t elems, Stream stream) {
  // y may be a or b: an element is read before it is written, and no other is touched.
  enqueue(stream, [=] {
    parallel_for(stream, elems, kElementGrain, [=](const Chunk& chunk) {
      for (std::int64_t i = chunk.first; i < chunk.last; ++i) { y[i] = a[i] + b[i]; }
    });
  });
}

}  // namespace tessera::kernels::cpu
