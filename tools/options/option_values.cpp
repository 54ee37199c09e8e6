#include "tools/options/option_values.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>
#include <system_error>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::tools {
namespace {

template <class T>
bool read_whole_text(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

std::string describe(const NumberRange& range) {
  const std::string least =
      fmt::format("{} {}", range.least_allowed ? "at least" : "above", range.least);
  return std::isinf(range.below)
             ? fmt::format("{} and at most {}", least, static_cast<float>(range.most))
             : fmt::format("{} and below {}", least, range.below);
}

/// Levenshtein's distance, one row at a time.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::int64_t parse_whole(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  if (!read_whole_text(text, value) || value < least || value > most) {
    throw ConfigError(
        fmt::format("'{}' is not a whole number from {} to {}", shown(text), least, most));
  }
  return value;
}

std::int64_t parse_count(std::string_view text, std::int64_t most) {
  double value = 0;
  const bool read = read_whole_text(text, value) && std::isfinite(value);
  if (!read || value < 1 || value > static_cast<double>(most) || value != std::floor(value)) {
    throw ConfigError(
        fmt::format("'{}' is not a whole number from 1 to {}, such as 124e6", shown(text), most));
  }
  return static_cast<std::int64_t>(value);
}

float parse_number(std::string_view text, const NumberRange& range) {
  double value = 0;
  const auto inside = [&](double x) {
    return std::isfinite(x) && (range.least_allowed ? x >= range.least : x > range.least) &&
           x < range.below && x <= range.most;
  };
  if (!read_whole_text(text, value) || !inside(value)) {
    throw ConfigError(fmt::format("'{}' is not a finite number {}", shown(text), describe(range)));
  }
  const auto rounded = static_cast<float>(value);
  if (value != 0 && rounded == 0.0F) {
    throw ConfigError(fmt::format("'{}' rounds to 0 in fp32; the smallest number above 0 is {}",
                                  shown(text), std::numeric_limits<float>::denorm_min()));
  }
  if (!inside(static_cast<double>(rounded))) {
    throw ConfigError(
        fmt::format("'{}' is {} in fp32, which is not {}", shown(text), rounded, describe(range)));
  }
  return rounded;
}

std::vector<std::string> parse_list(std::string_view text) {
  std::vector<std::string> entries;
  for (std::size_t first = 0; first <= text.size();) {
    const std::size_t comma = std::min(text.find(',', first), text.size());
    entries.emplace_back(text.substr(first, comma - first));
    if (entries.back().empty()) {
      throw ConfigError(
          fmt::format("'{}' has an empty entry; write names with commas between", shown(text)));
    }
    first = comma + 1;
  }
  return entries;
}

std::string repeated_option(std::span<const char* const> arguments) {
  std::set<std::string_view> seen;
  for (const std::string_view argument : arguments) {
    const std::string_view name = argument.substr(0, argument.find('='));
    if (name.starts_with("--") && !seen.insert(name).second) { return std::string{name}; }
  }
  return {};
}

std::string nearest(std::string_view text, const std::vector<std::string>& known) {
  std::string best;
  std::size_t best_edits = std::max<std::size_t>(2, text.size() / 3) + 1;
  for (const std::string& candidate : known) {
    const std::size_t distance = edits(text, candidate);
    if (distance < best_edits) {
      best_edits = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tessera::tools
