#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/memory/category.hpp"
#include "tessera/trace/moment.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera {

/// How a buffer counts as memory in use.
enum class BufferUse : std::uint8_t {
  whole,  ///< from its allocation to its end
  parts,  ///< where and while MemoryTracker::occupy says so: slots, activations
};

/// The most that was held, and the most of it that was in use, while a rank was in a phase.
struct PhaseMemory {
  std::size_t live_bytes = 0;
  std::size_t in_use_bytes = 0;

  friend bool operator==(const PhaseMemory&, const PhaseMemory&) = default;
};

/// What one rank holds: now, at its peak, and how many times it asked.
///
/// *Live* is what has been allocated: what must fit. *In use* leaves out the parts of slots and
/// activations that nothing occupies at the moment: it moves within a step, where live does not.
struct MemoryReport {
  CategoryBytes live;
  CategoryBytes at_peak;          ///< the composition at the first moment of the highest total
  std::size_t peak_bytes = 0;     ///< at_peak.total()
  trace::Moment peak_at;          ///< what the rank was doing then
  std::uint64_t allocations = 0;  ///< allocations made so far

  CategoryBytes in_use;
  CategoryBytes most_in_use;  ///< the composition at the first moment of the highest total
  std::size_t most_in_use_bytes = 0;
  trace::Moment most_in_use_at;

  std::array<PhaseMemory, trace::kPhases> by_phase{};  ///< indexed by trace::Phase
};

class MemoryTracker;

/// Memory that counts for as long as this lives. Move-only; empty when default-made. It keeps a
/// World's tracker; another tracker outlives it.
class CountedMemory {
 public:
  CountedMemory() = default;
  CountedMemory(CountedMemory&& other) noexcept;
  CountedMemory& operator=(CountedMemory&& other) noexcept;
  ~CountedMemory();

 private:
  friend class MemoryTracker;
  enum class Kind : std::uint8_t { allocation, part };
  CountedMemory(MemoryTracker& tracker, Kind kind, Category category, std::size_t bytes,
                std::string name);
  void end() noexcept;

  MemoryTracker* tracker_ = nullptr;
  std::shared_ptr<MemoryTracker> kept_;  // null if nobody shares the tracker
  Kind kind_ = Kind::allocation;
  Category category_ = Category::unattributed;
  std::size_t bytes_ = 0;
  std::string name_;
};

/// Counts one rank's memory by category, and holds it to a budget. A World shares its trackers with
/// what they count, which may outlive it. Threads: any.
class MemoryTracker : public std::enable_shared_from_this<MemoryTracker> {
 public:
  /// `budget_bytes`: what may be live at most.
  explicit MemoryTracker(trace::Recorder* recorder = nullptr,
                         std::optional<std::size_t> budget_bytes = {}) noexcept
      : recorder_{recorder}, budget_bytes_{budget_bytes} {}

  /// OutOfMemory, with what is held, if `bytes` more would exceed the budget.
  void require_room(Category category, std::size_t bytes, std::string_view name) const;
  /// Counts an allocation; as `require_room`, in which case nothing is counted.
  void add(Category category, std::size_t bytes, std::string_view name,
           BufferUse use = BufferUse::whole);
  void remove(Category category, std::size_t bytes, std::string_view name,
              BufferUse use = BufferUse::whole) noexcept;

  /// Counts a caller's own memory, allocated elsewhere: reports include it, the budget too.
  [[nodiscard]] CountedMemory register_memory(Category category, std::size_t bytes,
                                              std::string name);
  /// A part of a buffer of BufferUse::parts is in use, by `owner` (a unit).
  [[nodiscard]] CountedMemory occupy(Category category, std::size_t bytes, std::string owner);

  /// The recorder goes: what is counted from now on is recorded no more.
  void forget_recorder() noexcept;

  /// What the rank does from now on.
  void enter(trace::Phase phase, std::string_view unit, std::int64_t step);
  [[nodiscard]] trace::Moment moment() const;

  [[nodiscard]] std::optional<std::size_t> budget_bytes() const noexcept { return budget_bytes_; }
  [[nodiscard]] MemoryReport report() const;

 private:
  friend class CountedMemory;
  void use(Category category, std::size_t bytes, std::string_view name);
  void unuse(Category category, std::size_t bytes, std::string_view name) noexcept;
  void check_room(Category category, std::size_t bytes, std::string_view name) const;
  void update_peaks();
  void record(trace::Kind kind, Category category, std::size_t bytes, std::string_view name);

  mutable std::mutex mutex_;
  MemoryReport report_;
  trace::Moment moment_;
  trace::Recorder* recorder_;
  std::optional<std::size_t> budget_bytes_;
};

}  // namespace tessera
