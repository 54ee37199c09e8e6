#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tessera/base/error.hpp"

namespace tessera {

namespace detail {
[[noreturn]] void refuse_enumerator(std::string_view name, std::int64_t value, std::int64_t last);
}  // namespace detail

/// The last enumerator of a type, whose enumerators count from 0. The list of a struct's options
/// defines it for their types.
template <class Enum>
inline constexpr Enum kLast = Enum::kNotDefined;

/// Throws ContractError naming `name` unless `value` is one of its type's enumerators, which count
/// from 0 to `last`: a number that was converted without a check, or a member that was never set.
template <class Enum>
void require_enumerator(std::string_view name, Enum value, Enum last) {
  static_assert(std::is_enum_v<Enum>);
  if (value >= Enum{} && value <= last) [[likely]] { return; }
  detail::refuse_enumerator(name, static_cast<std::int64_t>(value),
                            static_cast<std::int64_t>(last));
}

}  // namespace tessera
