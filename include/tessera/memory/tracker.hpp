#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>

#include "tessera/memory/category.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera {

/// What one rank holds: now, at its peak, and how many times it asked.
struct MemoryReport {
  CategoryBytes live;
  CategoryBytes at_peak;          ///< the composition at the first moment of the highest total
  std::size_t peak_bytes = 0;     ///< at_peak.total()
  std::uint64_t allocations = 0;  ///< allocations made so far
};

/// Counts one rank's allocations by category. Threads: any.
class MemoryTracker {
 public:
  explicit MemoryTracker(trace::Recorder* recorder = nullptr) noexcept : recorder_{recorder} {}

  void add(Category category, std::size_t bytes, std::string_view name);
  void remove(Category category, std::size_t bytes, std::string_view name) noexcept;

  [[nodiscard]] MemoryReport report() const;
  /// The peak restarts from what is live now (to measure one step).
  void reset_peak();

 private:
  mutable std::mutex mutex_;
  MemoryReport report_;
  trace::Recorder* recorder_;
};

}  // namespace tessera
