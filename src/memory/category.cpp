#include "tessera/memory/category.hpp"

namespace tessera {

std::string_view to_string(Category category) noexcept {
  switch (category) {
    case Category::parameters:
      return "parameters";
    case Category::gradients:
      return "gradients";
    case Category::optimizer:
      return "optimizer";
    case Category::gather:
      return "gather";
    case Category::reduce:
      return "reduce";
    case Category::activations:
      return "activations";
    case Category::workspace:
      return "workspace";
    case Category::communicator:
      return "communicator";
    case Category::context:
      return "context";
    case Category::unattributed:
      return "unattributed";
  }
  return "unknown";
}

}  // namespace tessera
