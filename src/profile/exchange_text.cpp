#include "profile/exchange_text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <iterator>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera::profile {
namespace {

constexpr const char* kOtherCall =
    "gathering memory: another rank made another call; every rank must make the same collective "
    "calls in the same order";

}  // namespace

void TextWriter::add(std::uint64_t number) {
  fmt::format_to(std::back_inserter(text_), "{} ", number);
}

void TextWriter::add(std::string_view text) {
  fmt::format_to(std::back_inserter(text_), "{}:{} ", text.size(), text);
}

void TextWriter::add(const CategoryBytes& bytes) {
  for (std::size_t c = 0; c < kCategories; ++c) { add(bytes[static_cast<Category>(c)]); }
}

std::uint64_t TextReader::number_before(char end) {
  std::uint64_t value = 0;
  const char* const last = rest_.data() + rest_.size();
  const auto [next, error] = std::from_chars(rest_.data(), last, value);
  expects(error == std::errc{} && next != last && *next == end, kOtherCall);
  rest_.remove_prefix(static_cast<std::size_t>(next - rest_.data()) + 1);
  return value;
}

std::uint64_t TextReader::number() {
  return number_before(' ');
}

std::string TextReader::text() {
  const std::uint64_t size = number_before(':');
  expects(size < rest_.size() && rest_[size] == ' ', kOtherCall);
  std::string text{rest_.substr(0, size)};
  rest_.remove_prefix(size + 1);
  return text;
}

CategoryBytes TextReader::category_bytes() {
  CategoryBytes bytes;
  for (std::size_t c = 0; c < kCategories; ++c) { bytes[static_cast<Category>(c)] = number(); }
  return bytes;
}

}  // namespace tessera::profile
