#include "tessera/memory/tracker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "base/enumerator.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

namespace {

/// Throws if the sum would exceed 64 bits: it would wrap around to a small number.
void require_countable(std::size_t total, Category category, std::size_t bytes,
                       std::string_view name) {
  require_enumerator("the category", category, Category::unattributed);
  if (bytes <= std::numeric_limits<std::size_t>::max() - total) { return; }
  throw OutOfMemory(fmt::format(
      "no room for {} ({}, {} bytes): this rank holds {}, and the sum exceeds 64 bits; check the "
      "size",
      name, to_string(category), bytes, format_bytes(total)));
}

}  // namespace

void MemoryTracker::check_room(Category category, std::size_t bytes, std::string_view name) const {
  const std::size_t live = report_.live.total();
  require_countable(live, category, bytes, name);
  if (!budget_bytes_) { return; }
  if (live <= *budget_bytes_ && bytes <= *budget_bytes_ - live) { return; }
  throw OutOfMemory(fmt::format(
      "no room for {} ({}, {}) in {}{}{}: the budget is {} and this rank holds {}; raise the "
      "budget, or shard more (zero3), use more ranks or a smaller micro-batch",
      name, to_string(category), format_bytes(bytes), trace::to_string(moment_.phase),
      moment_.unit.empty() ? "" : " of ", moment_.unit, format_bytes(*budget_bytes_),
      describe(report_.live)));
}

void MemoryTracker::require_room(Category category, std::size_t bytes,
                                 std::string_view name) const {
  const std::lock_guard lock{mutex_};
  check_room(category, bytes, name);
}

// Called with the lock held, so that records have the order of the counts.
void MemoryTracker::record(trace::Kind kind, Category category, std::size_t bytes,
                           std::string_view name) {
  if (recorder_ == nullptr) { return; }
  trace::Record record;
  record.kind = kind;
  record.what = to_string(category);
  record.unit = name;
  record.bytes = bytes;
  record.step = moment_.step;
  record.phase = trace::to_string(moment_.phase);
  record.during = moment_.unit;
  recorder_->add(std::move(record));
}

void MemoryTracker::update_peaks() {
  const std::size_t live = report_.live.total();
  const std::size_t in_use = report_.in_use.total();
  if (live > report_.peak_bytes) {
    report_.peak_bytes = live;
    report_.at_peak = report_.live;
    report_.peak_at = moment_;
  }
  if (in_use > report_.most_in_use_bytes) {
    report_.most_in_use_bytes = in_use;
    report_.most_in_use = report_.in_use;
    report_.most_in_use_at = moment_;
  }
  PhaseMemory& phase = report_.by_phase[static_cast<std::size_t>(moment_.phase)];
  phase.live_bytes = std::max(phase.live_bytes, live);
  phase.in_use_bytes = std::max(phase.in_use_bytes, in_use);
}

void MemoryTracker::add(Category category, std::size_t bytes, std::string_view name,
                        BufferUse use) {
  const std::lock_guard lock{mutex_};
  check_room(category, bytes, name);
  record(trace::Kind::allocate, category, bytes, name);
  if (use == BufferUse::whole) {
    report_.in_use[category] += bytes;
  } else {
    record(trace::Kind::unuse, category, bytes, name);
  }
  report_.live[category] += bytes;
  ++report_.allocations;
  update_peaks();
}

void MemoryTracker::remove(Category category, std::size_t bytes, std::string_view name,
                           BufferUse use) noexcept {
  const std::lock_guard lock{mutex_};
  TESSERA_ASSERT(report_.live[category] >= bytes);
  report_.live[category] -= bytes;
  if (use == BufferUse::whole) { report_.in_use[category] -= bytes; }
  try {
    if (use == BufferUse::parts) { record(trace::Kind::use, category, bytes, name); }
    record(trace::Kind::release, category, bytes, name);
  } catch (const std::exception&) {
    // No memory for the record. Releasing memory must not fail; the count above is right.
  }
}

void MemoryTracker::use(Category category, std::size_t bytes, std::string_view name) {
  const std::lock_guard lock{mutex_};
  require_countable(report_.in_use.total(), category, bytes, name);
  record(trace::Kind::use, category, bytes, name);
  report_.in_use[category] += bytes;
  update_peaks();
}

void MemoryTracker::unuse(Category category, std::size_t bytes, std::string_view name) noexcept {
  const std::lock_guard lock{mutex_};
  TESSERA_ASSERT(report_.in_use[category] >= bytes);
  report_.in_use[category] -= bytes;
  try {
    record(trace::Kind::unuse, category, bytes, name);
  } catch (const std::exception&) {
    // As in `remove`.
  }
}

void MemoryTracker::note(const std::string& line) {
  const std::lock_guard lock{mutex_};
  if (std::ranges::find(notes_, line) == notes_.end()) { notes_.push_back(line); }
}

std::vector<std::string> MemoryTracker::notes() const {
  const std::lock_guard lock{mutex_};
  return notes_;
}

void MemoryTracker::forget_recorder() noexcept {
  const std::lock_guard lock{mutex_};
  recorder_ = nullptr;
}

void MemoryTracker::enter(trace::Phase phase, std::string_view unit, std::int64_t step) {
  const std::lock_guard lock{mutex_};
  moment_.phase = phase;
  moment_.unit = unit;
  moment_.step = step;
  update_peaks();
}

trace::Moment MemoryTracker::moment() const {
  const std::lock_guard lock{mutex_};
  return moment_;
}

MemoryReport MemoryTracker::report() const {
  const std::lock_guard lock{mutex_};
  return report_;
}

CountedMemory MemoryTracker::register_memory(Category category, std::size_t bytes,
                                             std::string name) {
  add(category, bytes, name);
  return {*this, CountedMemory::Kind::allocation, category, bytes, std::move(name)};
}

CountedMemory MemoryTracker::occupy(Category category, std::size_t bytes, std::string owner) {
  use(category, bytes, owner);
  return {*this, CountedMemory::Kind::part, category, bytes, std::move(owner)};
}

CountedMemory::CountedMemory(MemoryTracker& tracker, Kind kind, Category category,
                             std::size_t bytes, std::string name)
    : tracker_{&tracker},
      kept_{tracker.weak_from_this().lock()},
      kind_{kind},
      category_{category},
      bytes_{bytes},
      name_{std::move(name)} {}

CountedMemory::CountedMemory(CountedMemory&& other) noexcept
    : tracker_{std::exchange(other.tracker_, nullptr)},
      kept_{std::move(other.kept_)},
      kind_{other.kind_},
      category_{other.category_},
      bytes_{other.bytes_},
      name_{std::move(other.name_)} {}

CountedMemory& CountedMemory::operator=(CountedMemory&& other) noexcept {
  if (this != &other) {
    end();
    tracker_ = std::exchange(other.tracker_, nullptr);
    kept_ = std::move(other.kept_);
    kind_ = other.kind_;
    category_ = other.category_;
    bytes_ = other.bytes_;
    name_ = std::move(other.name_);
  }
  return *this;
}

CountedMemory::~CountedMemory() {
  end();
}

void CountedMemory::end() noexcept {
  if (tracker_ == nullptr) { return; }
  if (kind_ == Kind::part) {
    return std::exchange(tracker_, nullptr)->unuse(category_, bytes_, name_);
  }
  std::exchange(tracker_, nullptr)->remove(category_, bytes_, name_);
}

}  // namespace tessera
