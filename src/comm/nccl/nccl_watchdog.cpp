#include "comm/nccl/nccl_watchdog.hpp"

#include <algorithm>
#include <utility>

#include "comm/aborted.hpp"
#include "comm/failure_texts.hpp"
#include "device/cuda/cuda_check.hpp"
#include "tessera/base/error.hpp"

namespace tessera::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 2ms;
constexpr auto kControlFirst = 1s;
// More than any step has: a rank that is so far ahead of its device waits.
constexpr std::size_t kMostPending = 4096;

/// Goes with its stream.
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

void fail_after_control(JobGroup& group, const std::string& fault) {
  const auto end = std::chrono::steady_clock::now() + kControlFirst;
  while (!group.failed() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kTick);
  }
  group.fail(fault, FoundBy::this_rank);
}

void StreamReach::end_with(const std::exception_ptr& error) noexcept {
  const std::scoped_lock lock{mutex_};
  if (stream_ != nullptr) { stream_->end_with(error); }
}

void StreamReach::forget() noexcept {
  const std::scoped_lock lock{mutex_};
  stream_ = nullptr;
}

NcclChannel::NcclChannel(const ncclUniqueId& id, std::shared_ptr<JobGroup> group, CallKind kind,
                         const char* name)
    : comm_{id, std::move(group), name}, kind_{kind}, name_{name} {}

void NcclChannel::track(std::uint64_t sequence, std::string call, cuda::CudaStream& stream) {
  Pending batch{sequence, std::move(call), {}, {}};
  remember(stream);
  mark(batch, stream);
  std::unique_lock lock{mutex_};
  while (pending_.size() >= kMostPending && !comm_.aborted()) {
    lock.unlock();
    std::this_thread::sleep_for(kTick);
    lock.lock();
    forget_finished_locked();
  }
  if (pending_.empty()) { head_since_ = Clock::now(); }
  pending_.push_back(std::move(batch));
}

void NcclChannel::remember(cuda::CudaStream& stream) {
  std::shared_ptr<StreamReach>& reach = stream.extension<ReachedStream>().reach;
  if (!reach) { reach = std::make_shared<StreamReach>(stream); }
  const std::scoped_lock lock{mutex_};
  if (std::ranges::find(streams_, reach) == streams_.end()) { streams_.push_back(reach); }
}

cuda::EventHandle NcclChannel::take_spare() {
  const std::scoped_lock lock{mutex_};
  if (spare_.empty()) { return {}; }
  cuda::EventHandle event = std::move(spare_.back());
  spare_.pop_back();
  return event;
}

void NcclChannel::mark(Pending& batch, cuda::CudaStream& stream) {
  if (!stream.capturing()) {
    batch.end = take_spare();
    if (batch.end.get() == nullptr) { batch.end = cuda::make_event_handle(); }
    return cuda::check(cudaEventRecord(batch.end.get(), stream.handle()), "cudaEventRecord");
  }
  // Nobody can ask for a moment within a graph. There are as many flags as batches that are watched
  // and this one: the batch before of this number has finished.
  constexpr std::size_t flags = kMostPending + 1;
  if (!flags_) { flags_.emplace(flags); }
  batch.flag = flagged_++ % flags;
  *flags_->at(*batch.flag) = 0;
  cuda::launch_raise(flags_->at(*batch.flag), stream.open());
}

bool NcclChannel::finished(const Pending& batch) const {
  if (batch.flag) { return flags_->is_raised(*batch.flag); }
  // What else the device has to say, streams that are waited for say.
  return cudaEventQuery(batch.end.get()) != cudaErrorNotReady;
}

void NcclChannel::forget_finished_locked() {
  while (!pending_.empty() && finished(pending_.front())) {
    if (pending_.front().end.get() != nullptr) {
      spare_.push_back(std::move(pending_.front().end));
    }
    pending_.pop_front();
    head_since_ = Clock::now();
  }
}

std::optional<NcclChannel::Head> NcclChannel::look() {
  const std::scoped_lock lock{mutex_};
  forget_finished_locked();
  if (pending_.empty()) { return {}; }
  const Pending& head = pending_.front();
  return Head{head.sequence, head.call,
              std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - head_since_)};
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

NcclWatchdog::NcclWatchdog(std::shared_ptr<JobGroup> group, int ordinal,
                           std::array<std::shared_ptr<NcclChannel>, 2> channels)
    : group_{std::move(group)}, ordinal_{ordinal}, channels_{std::move(channels)}, thread_{[this] {
        watch();
      }} {}

NcclWatchdog::~NcclWatchdog() {
  {
    const std::scoped_lock lock{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (group_->failed()) { end_all(); }  // unless it has: the communicators' own ends come in turn
}

void NcclWatchdog::watch() {
  (void)cudaSetDevice(ordinal_);
  std::unique_lock lock{mutex_};
  while (!changed_.wait_for(lock, kTick, [&] { return stop_; })) {
    lock.unlock();
    try {
      for (const auto& channel : channels_) { look_at(*channel); }
      look_for_faults();
    } catch (const std::exception& error) { group_->fail(error.what(), FoundBy::this_rank); }
    if (group_->failed()) { return end_all(); }
    lock.lock();
  }
}

void NcclWatchdog::look_at(NcclChannel& channel) {
  const auto head = channel.look();
  if (!head || channel.comm().aborted()) { return; }
  if (channel.withdrawn(head->sequence)) {
    return end({&channel}, std::make_exception_ptr(Aborted{head->call + " was withdrawn"}));
  }
  if (const auto ended = group_->ended_without(channel.kind(), head->sequence)) {
    return group_->fail(ended_text(head->call, group_->rank(), *ended), FoundBy::this_rank);
  }
  if (head->age > group_->deadline()) {
    group_->fail(group_->late_text(channel.kind(), head->sequence, head->call, group_->deadline()),
                 FoundBy::this_rank);
  }
}

void NcclWatchdog::look_for_faults() {
  std::string fault;
  for (const auto& channel : channels_) {
    if (fault.empty()) { fault = channel->comm().fault(); }
  }
  if (!fault.empty()) { fail_after_control(*group_, fault); }
}

// All at the same time. Ending a communicator waits for the device, where a kernel of the other may
// wait for a peer that is gone until that one is being ended too; it waits for graphs to let go of
// its work; and a graph may be under launch, which waits for the device. Where no thread can be had
// the communicators come first all the same: that ends launches, and then the program, which sees
// its streams ended, lets go of graphs itself.
void NcclWatchdog::end(const std::vector<NcclChannel*>& channels,
                       const std::exception_ptr& error) noexcept {
  for (NcclChannel* const channel : channels) { channel->end_streams(error); }
  std::vector<std::thread> threads;
  for (NcclChannel* const channel : channels) {
    const auto abort = [this, channel] {
      (void)cudaSetDevice(ordinal_);
      channel->comm().abort();
    };
    try {
      threads.emplace_back(abort);
    } catch (const std::exception&) { abort(); }  // no thread or memory left: in turn, then
  }
  for (NcclChannel* const channel : channels) { channel->end_graphs(error); }
  for (std::thread& thread : threads) { thread.join(); }
}

void NcclWatchdog::end_all() noexcept {
  std::exception_ptr error;
  try {
    group_->check_alive();
  } catch (...) { error = std::current_exception(); }
  end({channels_[0].get(), channels_[1].get()}, error);
}

}  // namespace tessera::nccl
