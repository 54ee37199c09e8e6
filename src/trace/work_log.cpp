#include "tessera/trace/work_log.hpp"

#include <algorithm>
#include <utility>

namespace tessera::trace {

int WorkLog::add_stream(std::string name) {
  streams_.push_back(std::move(name));
  return static_cast<int>(streams_.size()) - 1;
}

std::size_t WorkLog::add_group(std::vector<int> members) {
  groups_.push_back(std::move(members));
  return groups_.size() - 1;
}

void WorkLog::enter(std::string_view phase) {
  const auto known = std::find(phases_.begin(), phases_.end(), phase);
  phase_ = static_cast<int>(known - phases_.begin());
  if (known == phases_.end()) { phases_.emplace_back(phase); }
}

void WorkLog::kernel(int stream, KernelWork work, double seconds) {
  kernels_.push_back(std::move(work));
  add(WorkEntry::Kind::kernel, stream, kernels_.size() - 1, seconds);
}

void WorkLog::batch(int stream, BatchWork work) {
  batches_.push_back(std::move(work));
  add(WorkEntry::Kind::batch, stream, batches_.size() - 1);
}

std::size_t WorkLog::record(int stream) {
  add(WorkEntry::Kind::record, stream, marks_);
  return marks_++;
}

void WorkLog::wait(int stream, std::size_t mark) {
  add(WorkEntry::Kind::wait, stream, mark);
}

void WorkLog::host_wait(std::size_t mark) {
  add(WorkEntry::Kind::host_wait, 0, mark);
}

void WorkLog::end_step() {
  add(WorkEntry::Kind::step, 0, 0);
}

void WorkLog::add(WorkEntry::Kind kind, int stream, std::size_t index, double seconds) {
  entries_.push_back(
      {.kind = kind, .stream = stream, .index = index, .phase = phase_, .seconds = seconds});
}

}  // namespace tessera::trace
