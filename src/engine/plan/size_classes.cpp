#include "engine/plan/size_classes.hpp"

#include <algorithm>
#include <utility>

#include "tessera/memory/buffer.hpp"

namespace tessera::engine {
namespace {

/// The best division of the sizes before an end, by its last class.
struct Division {
  std::size_t bytes = 0;
  std::size_t classes = 0;
  SizeClass last;

  [[nodiscard]] bool better_than(const Division& other) const noexcept {
    return std::pair{bytes, classes} < std::pair{other.bytes, other.classes};
  }
};

/// The indices at which a class may end: behind each run of equal sizes.
std::vector<std::size_t> ends_of_equal(std::span<const std::size_t> sizes) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= sizes.size(); ++i) {
    if (i == sizes.size() || sizes[i] != sizes[i - 1]) { ends.push_back(i); }
  }
  return ends;
}

}  // namespace

std::vector<SizeClass> size_classes(std::span<const std::size_t> sizes, int slots) {
  const auto most = static_cast<std::size_t>(slots);
  const std::vector<std::size_t> ends = ends_of_equal(sizes);
  std::vector<Division> best{{}};  // [d]: of the first d distinct sizes
  for (std::size_t d = 1; d <= ends.size(); ++d) {
    for (std::size_t from = 0; from < d; ++from) {
      const std::size_t first = from == 0 ? 0 : ends[from - 1];
      const std::size_t count = ends[d - 1] - first;
      const SizeClass last{first, count, static_cast<int>(std::min(count, most)),
                           Arena::need(sizes[ends[d - 1] - 1])};
      const Division one{best[from].bytes + last.bytes(), best[from].classes + 1, last};
      if (from == 0) {
        best.push_back(one);
      } else if (one.better_than(best[d])) {
        best[d] = one;
      }
    }
  }
  std::vector<SizeClass> classes;
  for (std::size_t d = ends.size(); d > 0;) {
    const SizeClass last = best[d].last;
    classes.push_back(last);
    while (d > 0 && ends[d - 1] > last.first) { --d; }
  }
  std::ranges::reverse(classes);
  return classes;
}

}  // namespace tessera::engine
