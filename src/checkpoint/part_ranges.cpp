#include "checkpoint/part_ranges.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <istream>
#include <sstream>
#include <string_view>
#include <utility>

namespace tessera {

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
  std::istringstream lines{text};
  for (PartRange range;
       lines >> range.first_byte >> range.bytes >> std::ws && std::getline(lines, range.file);) {
    ranges.push_back(range);
  }
  return ranges;
}

}  // namespace tessera
