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
  whole,  ///< all of it, from its allocation to its end
  parts,  ///< only what MemoryTracker::occupy counts, while it does: slots, activations
};

/// The most that was live, and the most that was in use, while a rank was in a phase.
struct PhaseMemory {
  std::size_t live_bytes = 0;    ///< the highest total of MemoryReport::live
  std::size_t in_use_bytes = 0;  ///< the highest total of MemoryReport::in_use

  friend bool operator==(const PhaseMemory&, const PhaseMemory&) = default;
};

/// What one rank holds now, what it held at its peak, and how often it allocated.
///
/// *Live* memory has been allocated: it is what must fit. Memory *in use* leaves out the parts of
/// slots and activations that nothing occupies at the moment: it changes within a step, where live
/// memory does not.
struct MemoryReport {
  CategoryBytes live;             ///< now
  CategoryBytes at_peak;          ///< the composition at the first moment of the highest total
  std::size_t peak_bytes = 0;     ///< at_peak.total()
  trace::Moment peak_at;          ///< what the rank was doing then
  std::uint64_t allocations = 0;  ///< allocations made so far

  CategoryBytes in_use;               ///< now
  CategoryBytes most_in_use;          ///< the composition at the first moment of the highest total
  std::size_t most_in_use_bytes = 0;  ///< most_in_use.total()
  trace::Moment most_in_use_at;       ///< what the rank was doing then

  std::array<PhaseMemory, trace::kPhases> by_phase{};  ///< indexed by trace::Phase
};

class MemoryTracker;

/// Memory that counts for as long as this object lives; it does not own the memory itself.
/// Move-only; empty when default-constructed. It keeps the tracker of a World alive; any other
/// tracker must outlive it.
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

/// Counts one rank's memory by category, and holds it to a budget. It allocates nothing itself. A
/// World shares its trackers with what they count, which may outlive the World. Threads: any.
class MemoryTracker : public std::enable_shared_from_this<MemoryTracker> {
 public:
  /// `recorder`, which may be null, is told of every change and must outlive the tracker or be
  /// dropped by `forget_recorder`. `budget_bytes` is the most that may be live; without a value
  /// there is no limit.
  explicit MemoryTracker(trace::Recorder* recorder = nullptr,
                         std::optional<std::size_t> budget_bytes = {}) noexcept
      : recorder_{recorder}, budget_bytes_{budget_bytes} {}

  /// Throws an OutOfMemory that says what is held if `bytes` more would exceed the budget. `name`
  /// says what they are for.
  void require_room(Category category, std::size_t bytes, std::string_view name) const;
  /// Counts an allocation. Throws as `require_room` does, and then counts nothing.
  void add(Category category, std::size_t bytes, std::string_view name,
           BufferUse use = BufferUse::whole);
  /// Takes back what an `add` with the same arguments counted. Aborts if it is more than is live.
  void remove(Category category, std::size_t bytes, std::string_view name,
              BufferUse use = BufferUse::whole) noexcept;

  /// Counts memory that the caller allocated elsewhere, in reports and against the budget, until
  /// the result is destroyed. Throws as `add` does.
  [[nodiscard]] CountedMemory register_memory(Category category, std::size_t bytes,
                                              std::string name);
  /// Counts a part of a buffer of BufferUse::parts as in use by `owner` (a unit's name), until the
  /// result is destroyed.
  [[nodiscard]] CountedMemory occupy(Category category, std::size_t bytes, std::string owner);

  /// Stops recording, for when the recorder is about to be destroyed. Counting goes on.
  void forget_recorder() noexcept;

  /// Sets what the rank does from now on: the moment that peaks and records carry.
  void enter(trace::Phase phase, std::string_view unit, std::int64_t step);
  /// What the rank is doing now, as `enter` last said.
  [[nodiscard]] trace::Moment moment() const;

  /// The most that may be live; no value if there is no limit.
  [[nodiscard]] std::optional<std::size_t> budget_bytes() const noexcept { return budget_bytes_; }
  /// A copy of all counts at this moment.
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
