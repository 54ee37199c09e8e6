#pragma once

#include <cstdint>

#include "tessera/base/shape.hpp"
#include "tessera/shard/ranges.hpp"

namespace tessera {

/// How a mesh's dimension `tensor` cuts a parameter: each rank along it has some of the indices of
/// one dimension, and computes with those alone. Any size is legal: parts may differ by a granule,
/// and be empty.
///
///   {.dim = 1}                                   columns of [in, out], in parts as equal as can be
///   {.dim = 1, .granule = 64, .sections = 3}     q, k and v beside each other: heads of 64 columns
struct TensorCut {
  int dim = 0;  ///< the dimension that is cut, from 0
  /// The number of neighbouring indices that stay together. The last granule of a dimension in one
  /// section may be shorter.
  std::int64_t granule = 1;
  /// The number of equal parts of the dimension that are each cut alike: 3 for q, k and v, 2 for
  /// the gate and the value of SwiGLU. A rank's part has its indices of the first section, then
  /// those of the second ...
  int sections = 1;

  friend bool operator==(const TensorCut&, const TensorCut&) = default;
};

/// The place of a rank along a mesh's dimension `tensor`.
struct TensorRank {
  int index = 0;  ///< from 0
  int size = 1;   ///< the number of ranks along the dimension

  friend bool operator==(const TensorRank&, const TensorRank&) = default;
};

/// What one rank has of a parameter that is cut, row-major and without gaps, or of one that is not.
/// It is pure arithmetic.
class TensorPart {
 public:
  /// Returns the part of the whole of a parameter.
  explicit TensorPart(const Shape& whole);
  /// Returns the part of the rank at `place`. Throws ContractError unless `cut` names a dimension
  /// of `whole`, sections divide its extent, and granules divide a section where there are several.
  TensorPart(const Shape& whole, const TensorCut& cut, TensorRank place);

  /// Returns the shape of the part.
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  /// Returns the number of elements of the part.
  [[nodiscard]] std::int64_t elems() const noexcept { return shape_.elems(); }
  /// Returns the first index of a section that the part has, counted from the section's begin.
  [[nodiscard]] std::int64_t first_index() const noexcept { return first_index_; }
  /// Returns the number of elements of lower ranks' parts. With the place in its own part it is a
  /// number that no other element of the parameter has.
  [[nodiscard]] std::int64_t elems_before() const noexcept;
  /// Returns which elements of the whole stand behind elements `local` of the part. Both ascend.
  /// Throws ContractError unless they are in the part.
  [[nodiscard]] Ranges elements(const Range& local) const;
  /// Returns the elements of the whole that the part has.
  [[nodiscard]] Ranges elements() const { return elements({0, elems()}); }

  /// Calls `visit(whole, at)` for each run of elements `local` of the part that lies end to end
  /// in the whole too: `whole` is the run, and `at` the place of its first element in the part.
  template <class Visit>
  void for_each_run(const Range& local, const Visit& visit) const {
    const std::int64_t end = local.end();
    for (std::int64_t at = local.first; at < end;) {
      const std::int64_t run = at / run_elems_;
      const std::int64_t next = (run + 1) * run_elems_ < end ? (run + 1) * run_elems_ : end;
      visit(Range{run * run_stride_ + run_first_ + at - run * run_elems_, next - at}, at);
      at = next;
    }
  }

 private:
  Shape shape_;
  std::int64_t first_index_ = 0;
  std::int64_t per_index_ = 0;  // elements of the whole for each index of a section
  // Runs of `run_elems_`, one for each section of each outer index, `run_stride_` apart.
  std::int64_t run_elems_ = 1;
  std::int64_t run_stride_ = 1;
  std::int64_t run_first_ = 0;
};

}  // namespace tessera
