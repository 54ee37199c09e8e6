#include "emulated_cuda/races/checker.hpp"

#include <algorithm>
#include <string>

#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/races/places.hpp"

namespace emulated_cuda {
namespace races {
namespace {

constinit thread_local Checker* of_grid = nullptr;

std::string in_words(Access access, Kind kind) {
  const bool writes = access == Access::write;
  switch (kind) {
    case Kind::atomic:
      return writes ? "atomic write" : "atomic read";
    case Kind::in_flight:
      return "asynchronous copy that its thread has not waited for";
    case Kind::plain:
      break;
  }
  return writes ? "write" : "read";
}

}  // namespace

Checker* checker() noexcept {
  return of_grid;
}

Checker::Checker(const dim3& /*grid*/, const dim3& block)
    : shadow_{borrow_shadow()},
      clock_{*shadow_, block.x * block.y * block.z},
      threads_{block.x * block.y * block.z} {
  of_grid = this;
}

Checker::~Checker() {
  of_grid = nullptr;
  give_back(std::move(shadow_));
}

void Checker::begin_block(uint3 block) {
  clock_.begin_block();
  blocks_.emplace_back(clock_.block_began(), block);
}

void Checker::run_thread(unsigned thread, const Context& stack) {
  thread_ = thread;
  spaces_.use_stack(stack.stack_bottom, stack.stack_bytes);
}

void Checker::read(unsigned lane, const void* from, std::size_t bytes) {
  const Space space = spaces_.of(from);
  check(
      {Access::read, from, bytes, space, {clock_.now(), thread_ / 32 * 32 + lane, Kind::plain, 0}});
}

void Checker::begin_copy(void* to, std::size_t width, const void* from, std::size_t bytes) {
  access(Access::write, Kind::in_flight, to, width, nullptr);
  if (bytes > 0) { access(Access::read, Kind::plain, from, bytes, nullptr); }
}

void Checker::finish_copy(void* to, std::size_t width, const void* from, std::size_t bytes) {
  const Record done{clock_.now(), thread_, Kind::plain, 0};
  // While it was in flight, nothing else accessed its target.
  shadow_->each_cell(to, width, [&](Cell& cell) { cell.writes = {done, {}}; });
  if (bytes > 0) { access(Access::read, Kind::plain, from, bytes, nullptr); }
}

void Checker::pass_on(Access access, const void* data, Space space) {
  if (access == Access::read) {
    clock_.read_atomically(thread_, data, began(space));
  } else {
    clock_.write_atomically(thread_, data, began(space));
  }
}

void Checker::check(const Accessed& now) {
  const std::uint64_t memory_began = began(now.space);
  shadow_->each_cell(now.data, now.bytes, [&](Cell& cell) {
    if (now.access == Access::read) {
      if (cell.reads[0].is_beside(now.record) && cell.reads[0].kind() <= now.record.kind()) {
        return;
      }
      check_against(cell.writes, Access::write, now, memory_began);
      return remember(cell.reads, now.record, memory_began);
    }
    check_against(cell.writes, Access::write, now, memory_began);
    check_against(cell.reads, Access::read, now, memory_began);
    if (now.record.kind() == Kind::atomic) {
      return remember(cell.writes, now.record, memory_began);
    }
    // Whatever races with an earlier access and not with this one has been found.
    cell = {{now.record, {}}, {}};
  });
}

void Checker::check_against(const Accesses& earlier, Access access, const Accessed& now,
                            std::uint64_t memory_began) const {
  for (const Record& record : earlier) {
    if (record.time() < memory_began) { continue; }
    if (record.kind() == Kind::atomic && now.record.kind() == Kind::atomic) { continue; }
    if (record.kind() == Kind::in_flight || !clock_.is_before(record, now.record.thread())) {
      report(record, access, now);
    }
  }
}

/// Keeps two accesses such that a later one that races with any access so far races with one of
/// them: with one of another block, or with one of two warps since the last barrier, or with one of
/// the last two of a warp. (Fences and __syncwarp with a part of the lanes may order both, and not
/// a third.)
void Checker::remember(Accesses& accesses, Record now, std::uint64_t memory_began) const {
  if (accesses[0].time() < memory_began) {
    accesses = {now, {}};
    return;
  }
  for (Record& record : accesses) {
    if (record.thread() != now.thread() || record.time() < clock_.block_began()) { continue; }
    // A plain access races with more than an atomic one of the same time.
    if (!record.is_beside(now) || now.kind() == Kind::plain) { record = now; }
    return;
  }
  if (Record* const least = least_needed(accesses, now, memory_began)) { *least = now; }
}

/// The one of two accesses that another thread's may replace; null if both are needed.
Record* Checker::least_needed(Accesses& accesses, Record now, std::uint64_t memory_began) const {
  auto& [first, second] = accesses;
  if (first.time() < clock_.block_began() || second.time() < memory_began) { return &second; }
  for (Record& record : accesses) {
    if (record.time() < clock_.barrier()) { return &record; }
  }
  for (Record& record : accesses) {
    if (record.kind() == Kind::atomic && now.kind() == Kind::plain) { return &record; }
  }
  if (first.warp() != second.warp()) { return nullptr; }
  return first.time() < second.time() ? &first : &second;
}

std::string Checker::where(Record record) const {
  const auto after = std::ranges::upper_bound(blocks_, record.time(), {},
                                              [](const auto& block) { return block.first; });
  const uint3 block = std::prev(after)->second;
  std::string text = "block (" + std::to_string(block.x) + ", " + std::to_string(block.y) + ", " +
                     std::to_string(block.z) + ") thread " + std::to_string(record.thread()) +
                     " of " + std::to_string(threads_);
  if (record.code() != 0) { text += ", at " + place_of_number(record.code()); }
  return text;
}

void Checker::report(Record earlier, Access access, const Accessed& now) const {
  misuse("a race on " + spaces_.describe(now.data) + ": a " +
         in_words(now.access, now.record.kind()) + " of " + std::to_string(now.bytes) +
         " bytes by " + where(now.record) + "; before it a " + in_words(access, earlier.kind()) +
         " by " + where(earlier));
}

}  // namespace races

std::unique_ptr<GridObserver> observe_grid(const dim3& grid, const dim3& block) {
  return std::make_unique<races::Checker>(grid, block);
}

}  // namespace emulated_cuda
