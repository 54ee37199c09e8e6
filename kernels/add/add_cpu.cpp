#include "device/cpu/host_task.hpp"
#include "device/cpu/parallel.hpp"
#include "kernels/add/add.hpp"
#include "kernels/support/grain.hpp"
#include "kernels/support/typed.hpp"
#include "kernels/support/vec.hpp"

namespace tessera::kernels::cpu {

void add(ConstValues a, ConstValues b, Values y, std::int64_t elems, Stream stream) {
  expects(a.dtype == b.dtype && a.dtype == y.dtype, "add: a, b and y are of one dtype");
  // y may be a or b: each element is read before it is written, and no other element is accessed.
  device::enqueue(stream, [=] {
    with_type(y.dtype, [&]<class T>(std::type_identity<T>) {
      device::parallel_for(stream, elems, kElementGrain, [=](const device::Chunk& chunk) {
        const std::int64_t first = chunk.first;
        for_lanes(chunk.size(), [=](std::int64_t i, auto lanes) {
          lanes.write(y.as<T>() + first + i,
                      lanes.read(a.as<T>() + first + i) + lanes.read(b.as<T>() + first + i));
        });
      });
    });
  });
}

}  // namespace tessera::kernels::cpu
