#include "comm/nccl/nccl_watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "base/process_limits.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/wait_clock.hpp"
#include "comm/nccl/last_resort.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm::nccl {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 2ms;
constexpr auto kControlFirst = 1s;
// Most looks take microseconds; a look that asks which ranks are missing waits for the control
// path.
constexpr auto kLookTime = 100ms;

/// The text for communicators that do not end after `error`.
std::string hangs_text(const std::string& rank, const std::exception_ptr& error,
                       std::chrono::milliseconds patience) {
  return fmt::format(
      "{}: {}; NCCL's communicators have not ended within {} s of that (ncclCommAbort does not "
      "return), so the process ends",
      rank, reason_of(error), patience.count() / 1000);
}

}  // namespace

void fail_after_control(TcpControlPlane& control, const std::string& fault) {
  Patience patience{kControlFirst};
  while (!control.failed() && !patience.over()) { std::this_thread::sleep_for(kTick); }
  control.fail(fault, control.rank());
}

NcclWatchdog::NcclWatchdog(std::shared_ptr<TcpControlPlane> control, int ordinal, Channels channels)
    : control_{std::move(control)}, ordinal_{ordinal}, channels_{std::move(channels)} {
  // First: if it fails, nothing may call this object.
  thread_ = start_thread("the thread that watches NCCL", [this] { watch(); });
  control_->name_calls_by([this] { return call_under_way(); });
}

NcclWatchdog::~NcclWatchdog() {
  control_->name_calls_by(nullptr);
  {
    const std::scoped_lock lock{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
  const std::scoped_lock lock{looking_};
  if (control_->failed()) {
    end_failed();
  } else {
    end_withdrawn();  // those withdrawn since the last look; otherwise the communicators' own ends
                      // do it in turn
  }
}

void NcclWatchdog::add(std::shared_ptr<NcclChannel> channel) {
  const std::scoped_lock lock{looking_};
  channels_.push_back(std::move(channel));
}

void NcclWatchdog::remove(NcclChannel& channel) noexcept {
  const std::scoped_lock lock{looking_};
  if (control_->failed() && !ended_) { end_failed(); }
  channel.withdraw();  // its owner does not wait for it
  end_withdrawn();
  release(channel);
  std::erase_if(channels_, [&](const auto& each) { return each.get() == &channel; });
}

/// The other ranks were told that this rank is held up in it, and no later look will correct that.
void NcclWatchdog::release(const NcclChannel& channel) noexcept {
  try {
    control_->note_held(channel.series(), {});
  } catch (const std::exception& error) { control_->abort(error.what()); }
}

/// Called on the control path's thread, which must not wait for a look that waits for it.
std::string NcclWatchdog::call_under_way() {
  const std::unique_lock lock{looking_, kLookTime};
  if (!lock) { return {}; }
  (void)cudaSetDevice(ordinal_);
  for (const auto& channel : channels_) {
    if (const auto head = channel->look()) { return head->call; }
  }
  return {};
}

void NcclWatchdog::watch() {
  (void)cudaSetDevice(ordinal_);
  std::unique_lock lock{mutex_};
  while (!changed_.wait_for(lock, kTick, [&] { return stop_; })) {
    lock.unlock();
    if (!look_at_all()) { return; }
    lock.lock();
  }
}

/// Returns false once the job has failed, and all communicators are ended.
bool NcclWatchdog::look_at_all() {
  const std::scoped_lock lock{looking_};
  if (!control_->failed()) {
    end_withdrawn();
    try {
      for (const auto& channel : channels_) { look_at(channel); }
      look_for_faults();
    } catch (const std::exception& error) { control_->fail(error.what(), control_->rank()); }
  }
  const bool failed = control_->failed();
  if (failed && !ended_) { end_failed(); }
  return !failed;
}

void NcclWatchdog::look_at(const std::shared_ptr<NcclChannel>& channel) {
  control_->note_held(channel->series(), channel->held());
  const auto head = channel->look();
  if (!head || channel->comm().aborted()) { return; }
  const CallSeries& series = channel->series();
  if (const auto ended = control_->ended_without(series, head->sequence)) {
    return control_->fail(ended_text(control_->names(), head->call, control_->rank(), *ended),
                          control_->rank());
  }
  if (head->age > control_->deadline()) {
    const std::string text =
        control_->late_text(series, head->sequence, head->call, control_->deadline());
    if (!text.empty()) { control_->fail(text, control_->rank()); }
  }
}

void NcclWatchdog::look_for_faults() {
  std::string fault;
  for (const auto& channel : channels_) {
    if (fault.empty()) { fault = channel->comm().fault(); }
  }
  if (!fault.empty()) { fail_after_control(*control_, fault); }
}

/// A rank that withdraws work on one communicator makes no calls on the others either: it unwinds.
void NcclWatchdog::end_withdrawn() noexcept {
  try {
    for (const auto& channel : channels_) {
      const auto head = channel->look();
      if (!head || channel->comm().aborted() || !channel->withdrawn(head->sequence)) { continue; }
      return end_all(std::make_exception_ptr(Aborted{head->call + " was withdrawn"}));
    }
  } catch (const std::bad_alloc&) { end_all(std::current_exception()); }
}

void NcclWatchdog::end_failed() noexcept {
  std::exception_ptr error;
  try {
    control_->check_alive();
  } catch (...) { error = std::current_exception(); }
  ended_ = true;
  end_all(error);
}

// Ends all at the same time. Ending a communicator waits for the device, where a kernel of another
// may wait for a lost peer until that one is ended too; it waits for graphs to release its work;
// and a launch of a graph may wait for the device. If no thread can be created, the communicators
// still come first: that ends launches, and then the program, which sees its streams ended,
// releases graphs itself.
void NcclWatchdog::end_all(const std::exception_ptr& error) noexcept {
  const auto patience = abort_time(control_->failed(), control_->deadline());
  const LastResort resort{
      [&, patience] { return hangs_text(control_->names().of(control_->rank()), error, patience); },
      patience};
  for (const auto& channel : channels_) { channel->end_streams(error); }
  std::vector<std::thread> threads;
  for (const auto& channel : channels_) {
    const auto abort = [this, channel = channel.get(), &error] {
      (void)cudaSetDevice(ordinal_);
      channel->comm().abort(error);
    };
    try {
      threads.emplace_back(abort);
    } catch (const std::exception&) { abort(); }  // no thread or memory left: ends them in turn
  }
  for (const auto& channel : channels_) { channel->end_graphs(error); }
  for (std::thread& thread : threads) { thread.join(); }
}

}  // namespace tessera::comm::nccl
