#include "tessera/memory/category.hpp"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/bytes.hpp"

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

std::string describe(const CategoryBytes& bytes) {
  std::string text = format_bytes(bytes.total());
  const char* separator = ": ";
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (bytes[category] == 0) { continue; }
    text += fmt::format("{}{} {}", std::exchange(separator, ", "), to_string(category),
                        format_bytes(bytes[category]));
  }
  return text;
}

}  // namespace tessera
