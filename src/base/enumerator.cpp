#include "base/enumerator.hpp"

#include <fmt/format.h>

namespace tessera::detail {

void refuse_enumerator(std::string_view name, std::int64_t value, std::int64_t last) {
  throw ContractError{
      fmt::format("{} is {}, but its enumerators count from 0 to {}; pass one of them by name",
                  name, value, last)};
}

}  // namespace tessera::detail
