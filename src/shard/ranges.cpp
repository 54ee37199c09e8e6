#include "tessera/shard/ranges.hpp"

#include <algorithm>

#include "tessera/base/error.hpp"

namespace tessera {

Ranges::Ranges(const Range& range) {
  append(range);
}

Ranges::Ranges(const std::vector<Range>& ranges) {
  for (const Range& range : ranges) { append(range); }
}

void Ranges::append(const Range& range) {
  expects(range.first >= 0 && range.elems >= 0,
          "Ranges: a range must begin at element 0 or later and have 0 elements or more");
  if (range.elems == 0) { return; }
  if (ranges_.empty() || ranges_.back().end() < range.first) {
    ranges_.push_back(range);
    return;
  }
  expects(ranges_.back().end() == range.first, "Ranges: ranges must ascend and not overlap");
  ranges_.back().elems += range.elems;
}

std::int64_t Ranges::elems() const noexcept {
  std::int64_t sum = 0;
  for (const Range& range : ranges_) { sum += range.elems; }
  return sum;
}

Ranges Ranges::intersect(const Ranges& other) const {
  Ranges common;
  auto mine = begin();
  auto theirs = other.begin();
  while (mine != end() && theirs != other.end()) {
    const std::int64_t first = std::max(mine->first, theirs->first);
    const std::int64_t last = std::min(mine->end(), theirs->end());
    if (first < last) { common.append({first, last - first}); }
    (mine->end() < theirs->end() ? mine : theirs)++;
  }
  return common;
}

}  // namespace tessera
