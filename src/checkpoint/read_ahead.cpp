#include "checkpoint/read_ahead.hpp"

#include <algorithm>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::checkpoint {

ReadAhead::ReadAhead(std::size_t rounds, std::size_t slots, std::size_t readers, Fill fill)
    : rounds_{rounds}, fill_{std::move(fill)}, slots_(slots) {
  expects(slots > 0 && readers > 0, "ReadAhead: at least one slot and one reader are needed");
  for (std::size_t reader = 0; reader < std::min(readers, rounds); ++reader) {
    readers_.emplace_back([this, reader] { work(reader); });
  }
}

ReadAhead::~ReadAhead() {
  const std::scoped_lock lock{mutex_};
  ended_ = true;
  room_.notify_all();
}

// A round that has begun is always completed, so all rounds before a failing one exist.
void ReadAhead::work(std::size_t reader) {
  for (;;) {
    std::unique_lock lock{mutex_};
    room_.wait(lock,
               [this] { return ended_ || begun_ == rounds_ || begun_ < used_ + slots_.size(); });
    if (ended_ || begun_ == rounds_) { return; }
    const std::size_t round = begun_++;
    lock.unlock();

    std::exception_ptr failure;
    try {
      fill_(round, reader);
    } catch (...) { failure = std::current_exception(); }

    lock.lock();
    slots_[round % slots_.size()] = {.filled = true, .failure = failure};
    if (failure) {
      ended_ = true;
      room_.notify_all();
    }
    filled_.notify_one();
  }
}

bool ReadAhead::wait_until(Clock::time_point end) {
  expects(used_ < rounds_, "ReadAhead: all rounds were used");
  for (const BackgroundJob& reader : readers_) {  // a thread that could not be started
    if (!reader.has_ended()) { continue; }
    if (const std::exception_ptr failure = reader.failure()) { std::rethrow_exception(failure); }
  }
  std::unique_lock lock{mutex_};
  const Slot& slot = slots_[used_ % slots_.size()];
  if (!filled_.wait_until(lock, end, [&] { return slot.filled; })) { return false; }
  if (slot.failure) { std::rethrow_exception(slot.failure); }
  return true;
}

void ReadAhead::release() {
  const std::scoped_lock lock{mutex_};
  slots_[used_ % slots_.size()] = {};
  ++used_;
  room_.notify_all();
}

}  // namespace tessera::checkpoint
