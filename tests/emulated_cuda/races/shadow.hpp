#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulated_cuda/races/record.hpp"

namespace emulated_cuda::races {

/// Up to two accesses that stand for all of their kind: reads, or writes.
using Accesses = std::array<Record, 2>;

/// What is known of bytes that have only been accessed together.
struct Cell {
  Accesses writes;
  Accesses reads;
};

/// Cells of the memory that grids access. A page's cells are as small as the smallest access to it.
///
/// Records are never erased: times only grow, so a user of the shadow ignores those from before its
/// own first time.
///
/// Threads: one at a time.
class Shadow {
 public:
  /// Calls visit(cell) for each cell of the bytes at `data`.
  template <class Visit>
  void each_cell(const void* data, std::size_t bytes, const Visit& visit) {
    auto at = reinterpret_cast<std::uintptr_t>(data);
    while (bytes > 0) {
      const std::size_t offset = at % kPageBytes;
      const std::size_t here = bytes < kPageBytes - offset ? bytes : kPageBytes - offset;
      Page& page = page_at(at / kPageBytes);
      if (((offset | here) & ((std::size_t{1} << page.log_bytes) - 1)) != 0) {
        page.refine(static_cast<unsigned>(std::countr_zero(offset | here)));
      }
      Cell* const end = page.cells.data() + ((offset + here) >> page.log_bytes);
      for (Cell* cell = page.cells.data() + (offset >> page.log_bytes); cell != end; ++cell) {
        visit(*cell);
      }
      at += here;
      bytes -= here;
    }
  }

  /// The time that has not been used for a record yet. Restarts if most times have been used, so it
  /// must be called before a grid's first access.
  [[nodiscard]] std::uint64_t begin_grid();
  /// A later time.
  std::uint64_t tick();

 private:
  static constexpr std::size_t kPageBytes = 4096;
  static constexpr unsigned kLogLargest = 4;  // of an access by a thread
  static constexpr std::size_t kRecent = 1024;
  static constexpr std::size_t kMostFree = 512;

  struct Page {
    unsigned log_bytes = kLogLargest;  ///< of a cell
    std::vector<Cell> cells = std::vector<Cell>(kPageBytes >> kLogLargest);

    void refine(unsigned to_log_bytes);
    void coarsen();  ///< loses records
  };
  struct Recent {
    std::uintptr_t number = 0;
    Page* page = nullptr;
  };

  Page& page_at(std::uintptr_t number) {
    Recent& recent = recent_[number % kRecent];
    if (recent.number != number || recent.page == nullptr) { recent = {number, &find(number)}; }
    return *recent.page;
  }
  Page& find(std::uintptr_t number);

  std::uint64_t time_ = 1;
  std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages_;
  std::vector<std::unique_ptr<Page>> free_;
  std::array<Recent, kRecent> recent_{};
};

/// Shadows are reused by one grid after another.
[[nodiscard]] std::unique_ptr<Shadow> borrow_shadow();
void give_back(std::unique_ptr<Shadow> shadow);

}  // namespace emulated_cuda::races
