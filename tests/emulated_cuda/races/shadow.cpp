#include "emulated_cuda/races/shadow.hpp"

#include <mutex>
#include <utility>

#include "emulated_cuda/misuse.hpp"

namespace emulated_cuda::races {

void Shadow::Page::refine(unsigned to_log_bytes) {
  const unsigned halvings = log_bytes - to_log_bytes;
  cells.resize(kPageBytes >> to_log_bytes);
  for (std::size_t i = cells.size(); i-- > 0;) { cells[i] = cells[i >> halvings]; }
  log_bytes = to_log_bytes;
}

void Shadow::Page::coarsen() {
  cells.resize(kPageBytes >> kLogLargest);
  log_bytes = kLogLargest;
}

std::uint64_t Shadow::begin_grid() {
  recent_ = {};
  if (time_ > Record::kTimes / 2) {
    free_.clear();
    pages_.clear();
    time_ = 1;
  }
  for (auto& [number, page] : pages_) {
    if (free_.size() == kMostFree) { break; }
    page->coarsen();
    free_.push_back(std::move(page));
  }
  pages_.clear();
  return tick();
}

std::uint64_t Shadow::tick() {
  if (++time_ == Record::kTimes) { misuse("a grid has too many barriers for the check of races"); }
  return time_;
}

Shadow::Page& Shadow::find(std::uintptr_t number) {
  std::unique_ptr<Page>& page = pages_[number];
  if (!page && !free_.empty()) {
    page = std::move(free_.back());
    free_.pop_back();
  }
  if (!page) { page = std::make_unique<Page>(); }
  return *page;
}

namespace {

struct FreeShadows {
  std::mutex mutex;
  std::vector<std::unique_ptr<Shadow>> shadows;
};

FreeShadows& free_shadows() {
  static auto* const all = new FreeShadows;  // streams may outlive statics at process exit
  return *all;
}

}  // namespace

std::unique_ptr<Shadow> borrow_shadow() {
  FreeShadows& free = free_shadows();
  const std::scoped_lock lock{free.mutex};
  if (free.shadows.empty()) { return std::make_unique<Shadow>(); }
  std::unique_ptr<Shadow> shadow = std::move(free.shadows.back());
  free.shadows.pop_back();
  return shadow;
}

void give_back(std::unique_ptr<Shadow> shadow) {
  FreeShadows& free = free_shadows();
  const std::scoped_lock lock{free.mutex};
  free.shadows.push_back(std::move(shadow));
}

}  // namespace emulated_cuda::races
