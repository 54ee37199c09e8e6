#include "device/cpu/host_task.hpp"
#include "kernels/cast/cast.hpp"
#include "kernels/support/element.hpp"

namespace tessera::kernels::reference {

void cast(View to, ConstView from, Stream stream) {
  device::enqueue(stream, [=] {
    const Values out{to.data, to.dtype};
    const ConstValues in{from.data, from.dtype};
    for (std::int64_t i = 0; i < to.elems; ++i) { write(out, i, read(in, i)); }
  });
}

}  // namespace tessera::kernels::reference
