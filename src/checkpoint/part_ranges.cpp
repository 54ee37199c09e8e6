#include "checkpoint/part_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/number_text.hpp"
#include "tessera/base/error.hpp"

namespace tessera::checkpoint {
namespace {

/// Takes a number and the character after it.
std::uint64_t number_before(std::string_view& text, char after) {
  const auto number = take_number<std::uint64_t>(text);
  expects(number && text.starts_with(after),
          "checkpoint: the ranges of another rank are not numbers");
  text.remove_prefix(1);
  return *number;
}

}  // namespace

std::vector<PartRange> merged(std::vector<PartRange> ranges) {
  std::ranges::sort(ranges, {}, [](const PartRange& range) {
    return std::pair{std::string_view{range.file}, range.first_byte};
  });
  std::vector<PartRange> all;
  for (PartRange& range : ranges) {
    if (range.bytes == 0) { continue; }
    if (!all.empty() && all.back().file == range.file &&
        all.back().first_byte + all.back().bytes == range.first_byte) {
      all.back().bytes += range.bytes;
    } else {
      all.push_back(std::move(range));
    }
  }
  return all;
}

std::string text_of(const std::vector<PartRange>& ranges) {
  std::string text;
  for (const PartRange& range : ranges) {
    text += fmt::format("{} {} {}\n", range.first_byte, range.bytes, range.file);
  }
  return text;
}

std::vector<PartRange> ranges_of(const std::string& text) {
  std::vector<PartRange> ranges;
  for (std::string_view left = text; !left.empty();) {
    PartRange range;
    range.first_byte = number_before(left, ' ');
    range.bytes = number_before(left, ' ');
    const std::size_t end = left.find('\n');
    expects(end != std::string_view::npos, "checkpoint: the ranges of another rank are cut off");
    range.file = left.substr(0, end);
    left.remove_prefix(end + 1);
    ranges.push_back(std::move(range));
  }
  return ranges;
}

}  // namespace tessera::checkpoint
