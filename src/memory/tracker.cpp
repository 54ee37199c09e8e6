#include "tessera/memory/tracker.hpp"

#include <exception>
#include <string>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

trace::Record record_of(trace::Kind kind, Category category, std::size_t bytes,
                        std::string_view name) {
  trace::Record record;
  record.kind = kind;
  record.what = to_string(category);
  record.unit = name;
  record.bytes = bytes;
  return record;
}

}  // namespace

void MemoryTracker::add(Category category, std::size_t bytes, std::string_view name) {
  if (recorder_ != nullptr) {
    recorder_->add(record_of(trace::Kind::allocate, category, bytes, name));
  }
  const std::lock_guard lock{mutex_};
  report_.live[category] += bytes;
  ++report_.allocations;
  if (const std::size_t total = report_.live.total(); total > report_.peak_bytes) {
    report_.peak_bytes = total;
    report_.at_peak = report_.live;
  }
}

void MemoryTracker::remove(Category category, std::size_t bytes, std::string_view name) noexcept {
  {
    const std::lock_guard lock{mutex_};
    TESSERA_ASSERT(report_.live[category] >= bytes);
    report_.live[category] -= bytes;
  }
  if (recorder_ == nullptr) { return; }
  try {
    recorder_->add(record_of(trace::Kind::release, category, bytes, name));
  } catch (const std::exception&) {
    // No memory for the record. Giving memory back must not fail; the count above is right.
  }
}

MemoryReport MemoryTracker::report() const {
  const std::lock_guard lock{mutex_};
  return report_;
}

void MemoryTracker::reset_peak() {
  const std::lock_guard lock{mutex_};
  report_.at_peak = report_.live;
  report_.peak_bytes = report_.live.total();
}

}  // namespace tessera
