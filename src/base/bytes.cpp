#include "tessera/base/bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 6> kBinary{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
constexpr std::array<std::string_view, 6> kDecimal{"KB", "MB", "GB", "TB", "PB", "EB"};

[[noreturn]] void refuse(std::string_view text, std::string_view why) {
  throw ConfigError(fmt::format(
      R"("{}" is not a size in bytes: {}; write for example "4096", "80GiB" or "1.5 MB")", text,
      why));
}

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool same_letters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) { return false; }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) { return false; }
  }
  return true;
}

std::optional<std::uint64_t> unit_bytes(std::string_view unit) {
  if (unit.empty() || same_letters(unit, "B")) { return 1; }
  std::uint64_t binary = 1;
  std::uint64_t decimal = 1;
  for (std::size_t i = 0; i < kBinary.size(); ++i) {
    binary *= 1024;
    decimal *= 1000;
    if (same_letters(unit, kBinary[i])) { return binary; }
    if (same_letters(unit, kDecimal[i])) { return decimal; }
  }
  return std::nullopt;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') { text.remove_prefix(1); }
  while (!text.empty() && text.back() == ' ') { text.remove_suffix(1); }
  return text;
}

// Whole numbers are read exactly; a fraction of a unit is rounded to the nearest byte.
std::optional<std::size_t> scaled(std::string_view number, std::uint64_t unit) {
  const char* const end = number.data() + number.size();
  std::uint64_t whole = 0;
  if (const auto [at, error] = std::from_chars(number.data(), end, whole); at == end) {
    std::uint64_t bytes = 0;
    const bool over = error != std::errc{} || __builtin_mul_overflow(whole, unit, &bytes);
    return over ? std::nullopt : std::optional{bytes};
  }
  double value = 0;
  const auto read = std::from_chars(number.data(), end, value, std::chars_format::fixed);
  if (read.ec != std::errc{}) { return std::nullopt; }
  const double bytes = std::round(value * static_cast<double>(unit));
  // 2^64, which a double holds exactly and a size does not.
  return bytes < 0x1p64 ? std::optional{static_cast<std::size_t>(bytes)} : std::nullopt;
}

bool is_number(std::string_view text) {
  if (text.empty() || text.front() == '.' || text.back() == '.') { return false; }
  return text.find('.') == text.rfind('.');
}

}  // namespace

std::string format_bytes(std::size_t bytes) {
  if (bytes < 1024) { return fmt::format("{} B", bytes); }
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  // 1023.5 and more would be printed as 1024: the next unit is shorter.
  while (value >= 1023.5 && unit + 1 < kBinary.size()) {
    value /= 1024;
    ++unit;
  }
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, kBinary[unit]);
}

std::size_t parse_bytes(std::string_view text) {
  const std::string_view trimmed = trim(text);
  const auto split = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  const std::string_view number = trimmed.substr(0, split);
  const std::string_view unit = trim(trimmed.substr(split));
  if (!is_number(number)) { refuse(text, "it does not start with a number"); }
  const auto scale = unit_bytes(unit);
  if (!scale) { refuse(text, fmt::format(R"(the unit "{}" is not known)", unit)); }
  const auto bytes = scaled(number, *scale);
  if (!bytes) { refuse(text, "it is 2^64 or more"); }
  return *bytes;
}

}  // namespace tessera
