#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/memory/category.hpp"
#include "tessera/trace/moment.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera {

/// How a buffer counts as memory in use.
enum class BufferUse : std::uint8_t {
  whole,  ///< all of it, from its allocation to its end
  parts,  ///< only the parts that MemoryTracker::occupy counts at the moment: slots, activations
};

/// The highest totals of memory while a rank was in a phase.
struct PhaseMemory {
  std::size_t live_bytes = 0;    ///< the highest total of MemoryReport::live
  std::size_t in_use_bytes = 0;  ///< the highest total of MemoryReport::in_use

  friend bool operator==(const PhaseMemory&, const PhaseMemory&) = default;
};

/// One rank's memory now and at its peak, and the number of its allocations.
///
/// *Live* memory is allocated: the live peak must fit into the device. Memory *in use* leaves out
/// the parts of slots and activations that nothing occupies at the moment. It changes within a
/// step; live memory does not.
struct MemoryReport {
  CategoryBytes live;             ///< live bytes now
  CategoryBytes at_peak;          ///< live bytes when their total first reached its highest value
  std::size_t peak_bytes = 0;     ///< at_peak.total()
  trace::Moment peak_at;          ///< what the rank was doing at the live peak
  std::uint64_t allocations = 0;  ///< number of allocations so far

  CategoryBytes in_use;               ///< bytes in use now
  CategoryBytes most_in_use;          ///< bytes in use when their total first was the highest
  std::size_t most_in_use_bytes = 0;  ///< most_in_use.total()
  trace::Moment most_in_use_at;       ///< what the rank was doing at that time

  std::array<PhaseMemory, trace::kPhases> by_phase{};  ///< indexed by trace::Phase
};

class MemoryTracker;

/// An entry of a MemoryTracker: memory counts as long as this object lives. It does not own the
/// memory. Move-only. It keeps the tracker of a World alive; any other tracker must outlive it.
class CountedMemory {
 public:
  /// An empty object, which counts nothing.
  CountedMemory() = default;
  /// Takes over what `other` counts; `other` is empty afterwards.
  CountedMemory(CountedMemory&& other) noexcept;
  /// Stops counting what this object counted, and takes over what `other` counts.
  CountedMemory& operator=(CountedMemory&& other) noexcept;
  /// Stops counting.
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

/// Counts one rank's memory by category and enforces a budget. It allocates nothing itself, but for
/// notes. The objects that a World's tracker counts share its ownership and may outlive the World.
///
/// Threads: any, also several at once.
class MemoryTracker : public std::enable_shared_from_this<MemoryTracker> {
 public:
  /// Makes a tracker that records every change with `recorder`, unless that is null. The recorder
  /// must outlive the tracker or be dropped by `forget_recorder`. `budget_bytes` is the most that
  /// may be live; without a value there is no limit.
  explicit MemoryTracker(trace::Recorder* recorder = nullptr,
                         std::optional<std::size_t> budget_bytes = {}) noexcept
      : recorder_{recorder}, budget_bytes_{budget_bytes} {}

  /// Throws an OutOfMemory with the bytes held by category if `bytes` more would exceed the budget.
  /// The error shows `category` and `name`.
  void require_room(Category category, std::size_t bytes, std::string_view name) const;
  /// Counts an allocation. If it would exceed the budget, throws OutOfMemory and counts nothing.
  void add(Category category, std::size_t bytes, std::string_view name,
           BufferUse use = BufferUse::whole);
  /// Undoes an `add` with the same arguments. Aborts if it removes more than is live.
  void remove(Category category, std::size_t bytes, std::string_view name,
              BufferUse use = BufferUse::whole) noexcept;

  /// Counts memory that the caller allocated elsewhere, in reports and against the budget, until
  /// the result is destroyed. If it would exceed the budget, throws OutOfMemory and counts nothing.
  [[nodiscard]] CountedMemory register_memory(Category category, std::size_t bytes,
                                              std::string name);
  /// Counts a part of a buffer of BufferUse::parts as in use by `owner` (a unit's name) until the
  /// result is destroyed.
  [[nodiscard]] CountedMemory occupy(Category category, std::size_t bytes, std::string owner);

  /// Adds a line to `notes`, unless it is there: what a model decided about its memory.
  void note(const std::string& line);
  /// Returns the lines noted so far, in order.
  [[nodiscard]] std::vector<std::string> notes() const;

  /// Stops recording, before the recorder is destroyed. Counting goes on.
  void forget_recorder() noexcept;

  /// Sets the moment that peaks and records carry from now on.
  void enter(trace::Phase phase, std::string_view unit, std::int64_t step);
  /// Returns the moment that `enter` set last.
  [[nodiscard]] trace::Moment moment() const;

  /// Returns the most bytes that may be live; no value if there is no limit.
  [[nodiscard]] std::optional<std::size_t> budget_bytes() const noexcept { return budget_bytes_; }
  /// Returns a copy of all counts at this moment.
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
  std::vector<std::string> notes_;
};

}  // namespace tessera
