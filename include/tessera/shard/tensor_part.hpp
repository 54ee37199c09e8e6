#pragma once

#include <cstdint>

#include "tessera/base/shape.hpp"
#include "tessera/shard/ranges.hpp"

namespace tessera {

/// How a mesh's dimension `tensor` cuts a parameter: each rank along it has some of the indices of
/// one dimension, and computes with those only. Any size is legal: parts may differ by a granule,
/// and may be empty.
///
///     {.dim = 1}                                   columns of [in, out], in nearly equal parts
///     {.dim = 1, .granule = 64, .sections = 3}     q, k and v side by side: heads of 64 columns
struct TensorCut {
  int dim = 0;  ///< the dimension that is cut, from 0
  /// The number of neighbouring indices that stay together. With one section the last granule may
  /// be shorter.
  std::int64_t granule = 1;
  /// The number of sections of the dimension, equal but for `lead`, each of which is cut alike: 3
  /// for q, k and v, 2 for the gate and the value of SwiGLU. A rank's part has its indices of the
  /// first section, then its indices of the second, and so on.
  int sections = 1;
  /// How many times as long as the other sections, and as their granules, the first section and its
  /// granules are: the query heads that share a head of keys and values.
  std::int64_t lead = 1;

  friend bool operator==(const TensorCut&, const TensorCut&) = default;
};

/// The place of a rank along a mesh's dimension `tensor`.
struct TensorRank {
  int index = 0;  ///< the rank's index along the dimension, from 0
  int size = 1;   ///< the number of ranks along the dimension

  friend bool operator==(const TensorRank&, const TensorRank&) = default;
};

/// One rank's part of a parameter, row-major and without gaps: all of a parameter that is not cut.
/// It is pure arithmetic.
class TensorPart {
 public:
  /// The part of a parameter that is not cut: all of it.
  explicit TensorPart(const Shape& whole);
  /// The part of the rank at `place`. Throws ContractError unless `cut` names a dimension of
  /// `whole`, sections divide its extent, and, if there are several sections, granules divide one.
  TensorPart(const Shape& whole, const TensorCut& cut, TensorRank place);

  /// Returns the shape of the part.
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  /// Returns the number of elements of the part.
  [[nodiscard]] std::int64_t elems() const noexcept { return shape_.elems(); }
  /// Returns the first index that the part has of each section, counted from the section's start;
  /// of the first section `lead` times as many indices come before.
  [[nodiscard]] std::int64_t first_index() const noexcept { return first_index_; }
  /// Returns the number of elements in the parts of lower ranks. Added to an element's index in
  /// this part it is unique in the parameter.
  [[nodiscard]] std::int64_t elems_before() const noexcept;
  /// Returns the elements of the whole parameter that are elements `local` of the part. Both
  /// ascend. Throws ContractError unless the part has them.
  [[nodiscard]] Ranges elements(const Range& local) const;
  /// Returns the elements of the whole parameter that the part has.
  [[nodiscard]] Ranges elements() const { return elements({0, elems()}); }

  /// Calls `visit(whole, at)` for each run of elements `local` of the part that is contiguous in
  /// the whole parameter too: `whole` is the run there, and `at` the index of its first element in
  /// the part.
  template <class Visit>
  void for_each_run(const Range& local, const Visit& visit) const {
    const std::int64_t end = local.end();
    for (std::int64_t at = local.first; at < end;) {
      const std::int64_t run = at / run_elems_;  // as if the first section were `lead_` sections
      const std::int64_t ahead = run % runs_;
      const bool leads = ahead < lead_;
      const std::int64_t first = leads ? run - ahead : run;
      const std::int64_t elems = (leads ? lead_ : 1) * run_elems_;
      const std::int64_t begin = first * run_elems_;
      const std::int64_t next = begin + elems < end ? begin + elems : end;
      const std::int64_t whole = first * run_stride_ + (leads ? lead_ : 1) * run_first_;
      visit(Range{whole + at - begin, next - at}, at);
      at = next;
    }
  }

 private:
  Shape shape_;
  std::int64_t first_index_ = 0;
  std::int64_t per_index_ = 0;  // elements of the whole for each index of a section
  // Runs of `run_elems_`, one for each section of each outer index, `run_stride_` apart. The first
  // section's is `lead_` times as long. `runs_` counts it `lead_` times.
  std::int64_t run_elems_ = 1;
  std::int64_t run_stride_ = 1;
  std::int64_t run_first_ = 0;
  std::int64_t lead_ = 1;
  std::int64_t runs_ = 1;
};

}  // namespace tessera
