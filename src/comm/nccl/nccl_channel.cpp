#include "comm/nccl/nccl_channel.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace tessera::comm::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kLookAgain = 2ms;
// More than any step has: a rank that is this far ahead of its device waits.
constexpr std::size_t kMostPending = 4096;
// When all ranks have issued a batch, NCCL launches it within milliseconds once it is connected.
constexpr auto kHeld = 200ms;

/// Destroyed with its stream.
struct ReachedStream final : cuda::StreamExtension {
  ReachedStream() = default;
  ReachedStream(const ReachedStream&) = delete;
  ReachedStream& operator=(const ReachedStream&) = delete;
  ~ReachedStream() override {
    if (reach) { reach->forget(); }
  }

  std::shared_ptr<StreamReach> reach;
};

}  // namespace

void StreamReach::end_with(const std::exception_ptr& error) noexcept {
  const std::scoped_lock lock{mutex_};
  if (stream_ != nullptr) { stream_->end_with(error); }
}

void StreamReach::forget() noexcept {
  const std::scoped_lock lock{mutex_};
  stream_ = nullptr;
}

NcclChannel::NcclChannel(std::unique_ptr<NcclComm> comm, const CallSeries& series, std::string name)
    : comm_{std::move(comm)}, series_{series}, name_{std::move(name)} {}

void NcclChannel::announce(std::uint64_t sequence, std::string call, cuda::CudaStream& stream) {
  remember(stream);
  wait_for_room();
  Pending batch{sequence, std::move(call), marks_.set(stream), {}};
  const std::scoped_lock lock{mutex_};
  announced_ = std::move(batch);
  announced_since_ = clock_.now();
}

// Batches of a graph that is still being captured begin after it: no rank waits for them.
void NcclChannel::wait_for_room() {
  std::unique_lock lock{mutex_};
  while (pending_.size() >= kMostPending && !pending_.front().begin.is_captured() &&
         !comm_->aborted()) {
    lock.unlock();
    std::this_thread::sleep_for(kLookAgain);
    lock.lock();
    forget_finished_locked();
  }
}

// While the device is behind, its queue may be full, and NCCL's launch waits for the queue, not for
// peers.
void NcclChannel::issue(const std::function<void(ncclComm_t)>& calls) {
  comm_->issue(calls, [this] { return busy(); });
}

bool NcclChannel::busy() {
  const std::scoped_lock lock{mutex_};
  forget_finished_locked();
  return !pending_.empty();
}

void NcclChannel::track(cuda::CudaStream& stream) {
  StreamMark end = marks_.set(stream);
  const std::scoped_lock lock{mutex_};
  if (pending_.empty()) { head_since_ = clock_.now(); }
  announced_->end = std::move(end);
  pending_.push_back(std::move(*announced_));
  announced_.reset();
}

void NcclChannel::retract() noexcept {
  std::optional<Pending> gone;
  const std::scoped_lock lock{mutex_};
  gone.swap(announced_);
}

void NcclChannel::remember(cuda::CudaStream& stream) {
  std::shared_ptr<StreamReach>& reach = stream.extension<ReachedStream>().reach;
  if (!reach) { reach = std::make_shared<StreamReach>(stream); }
  const std::scoped_lock lock{mutex_};
  if (std::ranges::find(streams_, reach) == streams_.end()) { streams_.push_back(reach); }
}

void NcclChannel::forget_finished_locked() {
  while (!pending_.empty() && StreamMarks::is_reached(pending_.front().end)) {
    marks_.take_back(std::move(pending_.front().begin));
    marks_.take_back(std::move(pending_.front().end));
    pending_.pop_front();
    head_since_ = clock_.now();
  }
}

void NcclChannel::wait_until_idle(TcpControlPlane& control) {
  while (!idle()) {
    control.check_alive();
    std::this_thread::sleep_for(kLookAgain);
  }
}

std::optional<NcclChannel::Head> NcclChannel::look() {
  const std::scoped_lock lock{mutex_};
  forget_finished_locked();
  const auto now = clock_.now();
  if (!pending_.empty() && !StreamMarks::is_reached(pending_.front().begin)) { head_since_ = now; }
  const auto head = [&](const Pending& batch, WaitClock::Time since) {
    return Head{batch.sequence, batch.call,
                std::chrono::duration_cast<std::chrono::milliseconds>(now - since)};
  };
  if (!pending_.empty()) { return head(pending_.front(), head_since_); }
  if (announced_) { return head(*announced_, std::max(announced_since_, head_since_)); }
  return {};
}

std::optional<std::uint64_t> NcclChannel::held() {
  const std::scoped_lock lock{mutex_};
  if (!announced_ || clock_.now() - announced_since_ < kHeld) { return {}; }
  return announced_->sequence;
}

void NcclChannel::end_streams(const std::exception_ptr& error) noexcept {
  const std::scoped_lock lock{mutex_};
  for (const auto& stream : streams_) { stream->end_with(error); }
}

void NcclChannel::end_graphs(const std::exception_ptr& error) noexcept {
  std::vector<std::shared_ptr<StreamReach>> streams;
  {
    const std::scoped_lock lock{mutex_};
    streams.swap(streams_);
  }
  for (const auto& stream : streams) { stream->capture().end_graphs(error); }
}

void NcclChannel::withdraw() noexcept {
  const std::scoped_lock lock{mutex_};
  forget_finished_locked();
  if (!pending_.empty()) { withdrawn_ = pending_.back().sequence + 1; }
}

}  // namespace tessera::comm::nccl
