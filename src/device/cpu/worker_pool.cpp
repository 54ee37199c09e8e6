#include "device/cpu/worker_pool.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <string>
#include <system_error>

#include "base/process_limits.hpp"
#include "device/cpu/thread_name.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/math.hpp"

namespace tessera::device {
namespace {

// More chunks than threads: a thread that is held up leaves chunks to the others.
constexpr std::int64_t kChunksPerThread = 4;
// Kernels follow each other within microseconds, and waking a thread takes about as long: a helper
// looks this often for the next loop (some 20 us) before it sleeps.
constexpr int kLooks = 400;

void pause_briefly() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

template <class Done>
void look_for(const Done& done) noexcept {
  for (int look = 0; look < kLooks && !done(); ++look) { pause_briefly(); }
}

}  // namespace

/// A loop and its next chunk that no thread has taken.
class WorkerPool::Loop {
 public:
  Loop(std::int64_t items, std::int64_t grain, int threads, Body body, void* context)
      : items_{items}, body_{body}, context_{context} {
    const std::int64_t grains = ceil_div(items, grain);
    chunk_ = grain * ceil_div(grains, kChunksPerThread * threads);
    chunks_ = ceil_div(items, chunk_);
  }

  [[nodiscard]] std::int64_t chunks() const noexcept { return chunks_; }

  void run(int worker) noexcept {
    for (;;) {
      const std::int64_t at = next_.fetch_add(1, std::memory_order_relaxed);
      if (at >= chunks_) { return; }
      const std::int64_t first = at * chunk_;
      try {
        body_(context_, {first, std::min(first + chunk_, items_), worker});
      } catch (...) { keep(at, std::current_exception()); }
    }
  }

  void rethrow() const {
    if (error_) { std::rethrow_exception(error_); }
  }

 private:
  // All chunks before a failed one have begun, so the first failure does not depend on timing.
  void keep(std::int64_t at, std::exception_ptr error) noexcept {
    next_.store(chunks_, std::memory_order_relaxed);
    const std::lock_guard lock{mutex_};
    if (at < failed_) {
      failed_ = at;
      error_ = std::move(error);
    }
  }

  std::int64_t items_;
  Body body_;
  void* context_;
  std::int64_t chunk_ = 0;
  std::int64_t chunks_ = 0;
  std::atomic<std::int64_t> next_ = 0;
  std::mutex mutex_;
  std::int64_t failed_ = std::numeric_limits<std::int64_t>::max();
  std::exception_ptr error_;
};

WorkerPool::WorkerPool(int threads, std::string_view name) {
  expects(threads >= 1, "a pool needs at least the calling thread");
  helpers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int helper = 1; helper < threads; ++helper) {
    try {
      helpers_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      stop();
      throw DeviceError(fmt::format("thread {} of {} of \"{}\" cannot be started: {}", helper + 1,
                                    threads, name, no_thread_text(error)));
    } catch (...) {
      stop();
      throw;
    }
    name_thread(helpers_.back(), name);
  }
}

WorkerPool::~WorkerPool() {
  stop();
}

void WorkerPool::stop() noexcept {
  {
    const std::lock_guard lock{mutex_};
    closing_ = true;
  }
  loop_opened_.notify_all();
  for (std::thread& helper : helpers_) { helper.join(); }
  helpers_.clear();
}

void WorkerPool::for_chunks(std::int64_t items, std::int64_t grain, Body body, void* context) {
  if (items <= 0) { return; }
  Loop loop{items, grain, threads(), body, context};
  if (loop.chunks() == 1 || taken_.exchange(true, std::memory_order_acquire)) {
    body(context, {0, items, 0});
    return;
  }
  open(loop, loop.chunks() - 1);
  loop.run(0);
  close();
  taken_.store(false, std::memory_order_release);
  loop.rethrow();
}

void WorkerPool::open(Loop& loop, std::int64_t helpers) {
  {
    const std::lock_guard lock{mutex_};
    loop_ = &loop;
    wanted_ = helpers;
    joined_ = 0;
    opened_.fetch_add(1, std::memory_order_relaxed);
  }
  loop_opened_.notify_all();
}

// No chunk is left to begin. Helpers outside the loop stay out; the others run their last chunk.
void WorkerPool::close() noexcept {
  {
    const std::lock_guard lock{mutex_};
    loop_ = nullptr;
  }
  const auto left = [this] { return active_.load(std::memory_order_acquire) == 0; };
  look_for(left);
  if (left()) { return; }
  std::unique_lock lock{mutex_};
  helpers_left_.wait(lock, left);
}

// Blocks until a loop wants one more helper; returns null when the pool is being destroyed.
WorkerPool::Loop* WorkerPool::join(std::uint64_t& seen, int& worker) {
  look_for([&] { return opened_.load(std::memory_order_relaxed) != seen; });
  std::unique_lock lock{mutex_};
  for (;;) {
    loop_opened_.wait(lock, [&] { return closing_ || opened_ != seen; });
    if (closing_) { return nullptr; }
    seen = opened_;
    if (loop_ == nullptr || joined_ == wanted_) { continue; }
    worker = ++joined_;
    active_.fetch_add(1, std::memory_order_relaxed);
    return loop_;
  }
}

void WorkerPool::leave() noexcept {
  {
    const std::lock_guard lock{mutex_};
    active_.fetch_sub(1, std::memory_order_release);
  }
  helpers_left_.notify_one();
}

void WorkerPool::work() noexcept {
  std::uint64_t seen = 0;
  int worker = 0;
  while (Loop* const loop = join(seen, worker)) {
    loop->run(worker);
    leave();
  }
}

}  // namespace tessera::device
