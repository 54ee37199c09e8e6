#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// Elements [first, first + elems) of a segment or of a tensor.
struct Range {
  std::int64_t first = 0;  ///< the first element
  std::int64_t elems = 0;  ///< the number of elements

  /// Returns the index one past the last element.
  [[nodiscard]] std::int64_t end() const noexcept { return first + elems; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// The elements of a segment or of a tensor that a rank owns, as a list of ranges. It is pure
/// arithmetic.
///
/// The ranges ascend, none is empty, and no two of them touch: equal elements make equal lists. A
/// shard of a segment is one range; some columns of a row-major matrix are one range for each row.
class Ranges {
 public:
  /// An empty list.
  Ranges() = default;
  /// Makes a list of one range, or of none if the range is empty. It is implicit, so that a range
  /// can stand for a list. Throws ContractError if the range begins below 0 or has fewer than 0
  /// elements.
  Ranges(const Range& range);
  /// Makes a list of the elements of all of `ranges`. Empty ranges are left out, and ranges that
  /// touch become one. Throws ContractError unless they ascend and do not overlap.
  explicit Ranges(const std::vector<Range>& ranges);

  /// Returns an iterator to the first range.
  [[nodiscard]] auto begin() const noexcept { return ranges_.begin(); }
  /// Returns the end of the iteration over the ranges.
  [[nodiscard]] auto end() const noexcept { return ranges_.end(); }
  /// Returns whether the list has no elements.
  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  /// Returns the number of ranges.
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }
  /// Returns the number of elements.
  [[nodiscard]] std::int64_t elems() const noexcept;
  /// Returns the elements that both lists have.
  [[nodiscard]] Ranges intersect(const Ranges& other) const;

  friend bool operator==(const Ranges&, const Ranges&) = default;

 private:
  void append(const Range& range);

  std::vector<Range> ranges_;
};

}  // namespace tessera
