// The functions of fmt that other files call, compiled only here: cmake/fmt.cmake.
#define FMT_HEADER_ONLY 1
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <locale>
#include <string>

namespace {

// Taking a function's address makes the compiler emit it, under fmt's own name.
[[gnu::used]] std::string (*const kFormat)(fmt::string_view, fmt::format_args) = fmt::vformat;
[[gnu::used]] void (*const kPrint)(fmt::string_view, fmt::format_args) = fmt::vprint;
[[gnu::used]] void (*const kPrintTo)(std::FILE*, fmt::string_view, fmt::format_args) = fmt::vprint;
[[gnu::used]] bool (*const kIsPrintable)(std::uint32_t) = fmt::detail::is_printable;
[[gnu::used]] const auto kThousands = &fmt::detail::thousands_sep_impl<char>;
[[gnu::used]] const auto kPoint = &fmt::detail::decimal_point_impl<char>;
[[gnu::used]] const auto kFloat = &fmt::detail::dragonbox::to_decimal<float>;
[[gnu::used]] const auto kDouble = &fmt::detail::dragonbox::to_decimal<double>;
[[gnu::used]] const auto kLocale = &fmt::detail::locale_ref::get<std::locale>;
[[gnu::used]] const auto kError = &fmt::detail::throw_format_error;
[[gnu::used]] const auto kAssert = &fmt::detail::assert_fail;

}  // namespace
