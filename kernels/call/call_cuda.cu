#include <exception>

#include "device/cuda/cuda_stream.hpp"
#include "kernels/call/call.hpp"

namespace tessera::kernels::cuda {

// NOLINTNEXTLINE(performance-unnecessary-value-param): CallKernel's: other backends keep the work
void call(std::function<void()> work, Stream stream) {
  (void)tessera::cuda::cuda_stream(stream).open();  // an ended stream takes no more work
  try {
    work();
  } catch (...) {
    stream.state()->end_with(std::current_exception());
    throw;
  }
}

}  // namespace tessera::kernels::cuda
