#include "tessera/shard/tensor_part.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera {
namespace {

constexpr std::int64_t kMostLead = std::int64_t{1} << 40;  // far below an overflow

/// The sections as long as the last one that the dimension has.
std::int64_t sections_of(const TensorCut& cut) {
  return cut.lead + cut.sections - 1;
}

void check(const Shape& whole, const TensorCut& cut, TensorRank place) {
  expects(place.size >= 1 && place.index >= 0 && place.index < place.size,
          "TensorPart: this place along tensor does not exist");
  const int dims = static_cast<int>(whole.dims().size());
  if (cut.dim < 0 || cut.dim >= dims) {
    throw ContractError{fmt::format("a parameter of shape {} has no dimension {} to be cut along",
                                    whole.to_string(), cut.dim)};
  }
  const std::int64_t extent = whole.dims()[static_cast<std::size_t>(cut.dim)];
  const bool counts =
      cut.sections >= 1 && cut.granule >= 1 && cut.lead >= 1 && cut.lead <= kMostLead;
  if (!counts || extent % sections_of(cut) != 0 ||
      (sections_of(cut) > 1 && extent / sections_of(cut) % cut.granule != 0)) {
    throw ContractError{fmt::format(
        "dimension {} of a parameter of shape {} cannot be cut in {} sections{} of whole "
        "granules of {}: sections must divide the extent, and granules a section",
        cut.dim, whole.to_string(), cut.sections,
        cut.lead == 1 ? "" : fmt::format(", the first {} times as long,", cut.lead), cut.granule)};
  }
}

// Granules before the part of rank `index`, as indices.
std::int64_t indices_before(std::int64_t section, std::int64_t granule, int index, int size) {
  const std::int64_t granules = ceil_div(section, granule);
  return std::min(granules * index / size * granule, section);
}

}  // namespace

TensorPart::TensorPart(const Shape& whole) : shape_{whole} {
  run_elems_ = run_stride_ = std::max<std::int64_t>(whole.elems(), 1);
}

TensorPart::TensorPart(const Shape& whole, const TensorCut& cut, TensorRank place) : shape_{whole} {
  check(whole, cut, place);
  std::vector<std::int64_t> dims(whole.dims().begin(), whole.dims().end());
  const auto dim = static_cast<std::size_t>(cut.dim);
  std::int64_t inner = 1;
  for (std::size_t d = dim + 1; d < dims.size(); ++d) { inner *= dims[d]; }
  lead_ = cut.lead;
  runs_ = sections_of(cut);
  const std::int64_t section = dims[dim] / runs_;
  first_index_ = indices_before(section, cut.granule, place.index, place.size);
  const std::int64_t end = indices_before(section, cut.granule, place.index + 1, place.size);
  per_index_ = section > 0 ? whole.elems() / section : 0;
  dims[dim] = (end - first_index_) * runs_;
  shape_ = Shape{dims};
  run_elems_ = std::max<std::int64_t>((end - first_index_) * inner, 1);
  run_stride_ = std::max<std::int64_t>(section * inner, 1);
  run_first_ = first_index_ * inner;
}

std::int64_t TensorPart::elems_before() const noexcept {
  return first_index_ * per_index_;
}

Ranges TensorPart::elements(const Range& local) const {
  expects(local.first >= 0 && local.elems >= 0 && local.end() <= elems(),
          "TensorPart: the elements are not all in the part");
  std::vector<Range> runs;
  for_each_run(local, [&](const Range& whole, std::int64_t /*at*/) {
    if (!runs.empty() && runs.back().end() == whole.first) {
      runs.back().elems += whole.elems;
    } else {
      runs.push_back(whole);
    }
  });
  return Ranges{runs};
}

}  // namespace tessera
