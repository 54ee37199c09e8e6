#include "emulated_cuda/observer.hpp"

namespace emulated_cuda {

std::unique_ptr<GridObserver> observe_grid(const dim3& /*grid*/, const dim3& /*block*/) {
  return nullptr;
}

}  // namespace emulated_cuda
