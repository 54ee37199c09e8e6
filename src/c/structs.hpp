#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "c/errors.hpp"
#include "tessera/c.h"

namespace tessera::c {

/// The size of each struct with a `size` in the first release of this major version: a program must
/// pass at least that. New members are added at the end.
template <class Struct>
inline constexpr std::size_t kFirstSize = sizeof(Struct);

template <>
inline constexpr std::size_t kFirstSize<tessera_world_options> =
    offsetof(tessera_world_options, products);

template <>
inline constexpr std::size_t kFirstSize<tessera_load_options> =
    offsetof(tessera_load_options, allow_partial);

/// Throws ContractError for a struct size that does not fit this library.
template <class Struct>
void require_size(Call call, const char* name, std::size_t size) {
  static_assert(std::is_trivially_copyable_v<Struct> && offsetof(Struct, size) == 0);
  if (size >= kFirstSize<Struct> && size <= sizeof(Struct)) { return; }
  call.refuse(fmt::format(
      "the size of {} is {}, but this library knows it with {} bytes; set it to sizeof with the "
      "_init function or {{.size = sizeof ...}}, and use the header of this library",
      name, size, sizeof(Struct)));
}

/// The caller's values in a struct of options, or `defaults` for null. Members that the caller's
/// header does not know keep their defaults.
template <class Struct>
[[nodiscard]] Struct given_or(Call call, const char* name, const Struct* given, Struct defaults) {
  if (given == nullptr) { return defaults; }
  require_size<Struct>(call, name, given->size);
  std::memcpy(&defaults, given, given->size);
  return defaults;
}

/// Writes as much of `from` as fits the caller's struct of `size` bytes.
template <class Struct>
void write_sized(Call call, const char* name, Struct* to, std::size_t size, Struct from) {
  call.require(to, name);
  require_size<Struct>(call, name, size);
  from.size = size;
  std::memcpy(to, &from, size);
}

/// A flag of a struct: 0 or 1.
[[nodiscard]] inline bool flag(Call call, const char* name, std::int32_t value) {
  if (value != 0 && value != 1) {
    call.refuse(fmt::format("{} is {}, but must be a flag, 0 or 1", name, value));
  }
  return value == 1;
}

/// Throws ContractError unless reserved bytes are zero.
template <class Reserved>
void require_zero(Call call, const char* name, const Reserved& reserved) {
  const Reserved zero{};
  if (std::memcmp(&reserved, &zero, sizeof zero) != 0) {
    call.refuse(fmt::format(
        "{} has reserved bytes that are not zero; initialise the struct, as with {{0}}", name));
  }
}

/// The enumerator with number `value`, up to `most`.
template <class Enum>
[[nodiscard]] Enum enumerator(Call call, const char* name, std::int32_t value, Enum most) {
  if (value < 0 || value > static_cast<std::int32_t>(most)) {
    call.refuse(fmt::format("{} is {}, but must be from 0 to {}", name, value,
                            static_cast<std::int32_t>(most)));
  }
  return static_cast<Enum>(value);
}

}  // namespace tessera::c
