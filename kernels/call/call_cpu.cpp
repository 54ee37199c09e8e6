#include <utility>

#include "device/cpu/host_task.hpp"
#include "kernels/call/call.hpp"

namespace tessera::kernels::cpu {

void call(std::function<void()> work, Stream stream) {
  device::enqueue(stream, [work = std::move(work)] { work(); });
}

}  // namespace tessera::kernels::cpu
