#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tessera {

/// Elements [first, first + elems) of a segment or of a tensor.
struct Range {
  std::int64_t first = 0;
  std::int64_t elems = 0;

  /// The element behind the last one.
  [[nodiscard]] std::int64_t end() const noexcept { return first + elems; }
  friend bool operator==(const Range&, const Range&) = default;
};

/// Which elements of a segment or of a tensor a rank owns, as a list of ranges. Pure arithmetic.
///
/// The ranges ascend, none is empty, and no two of them touch: equal elements make equal lists.
/// A shard of a segment is one range. A cut along another dimension needs no other type: some
/// columns of a row-major matrix are one range for each row.
class Ranges {
 public:
  Ranges() = default;
  /// A list of one range; of none if the range is empty. Implicit: a range is a list. ContractError
  /// if it begins below 0 or has fewer than 0 elements.
  Ranges(const Range& range);
  /// The elements of all of `ranges`. ContractError unless they ascend and do not overlap. Empty
  /// ranges are left out, and ranges that touch become one.
  explicit Ranges(const std::vector<Range>& ranges);

  [[nodiscard]] auto begin() const noexcept { return ranges_.begin(); }
  [[nodiscard]] auto end() const noexcept { return ranges_.end(); }
  [[nodiscard]] bool empty() const noexcept { return ranges_.empty(); }
  /// The number of ranges.
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }
  /// The number of elements.
  [[nodiscard]] std::int64_t elems() const noexcept;
  /// The elements that both lists have.
  [[nodiscard]] Ranges intersect(const Ranges& other) const;

  friend bool operator==(const Ranges&, const Ranges&) = default;

 private:
  void append(const Range& range);

  std::vector<Range> ranges_;
};

}  // namespace tessera
