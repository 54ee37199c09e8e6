#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace tessera {

/// Takes a whole number from the front of `text`. Empty, and `text` unchanged, if there is none or
/// it does not fit. Unlike a stream it does not depend on the program's std::locale, whose
/// thousands separator may be a blank.
template <class Number>
[[nodiscard]] std::optional<Number> take_number(std::string_view& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) { return {}; }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

}  // namespace tessera
