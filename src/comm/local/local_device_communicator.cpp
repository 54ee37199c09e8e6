#include "comm/local/local_device_communicator.hpp"

#include <exception>
#include <functional>
#include <optional>

#include "comm/control/local/exchange_texts.hpp"
#include "comm/stream_watch.hpp"
#include "device/stream_state.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

class DeviceHands final : public Hands {
 public:
  DeviceHands(Device& device, const kernels::Table& kernels, Stream stream) noexcept
      : device_{device}, kernels_{kernels}, stream_{stream} {}

  void copy(void* to, ConstView from, std::size_t /*whole*/) override {
    if (from.elems > 0 && to != from.data) { device_.copy(to, from.data, from.bytes(), stream_); }
  }
  void reduce(View to, std::span<const void* const> from, ReduceOp op) override {
    if (from.size() == 1) { return copy(to.data, {from[0], to.elems, to.dtype}, to.bytes()); }
    kernels_.combine(to.data, from, to.elems, to.dtype, op, stream_);
  }

 private:
  Device& device_;
  const kernels::Table& kernels_;
  Stream stream_;
};

DeviceMarks make_marks(Device& device) {
  return {device.make_event(), device.make_event(), device.make_event()};
}

/// `stream` waits until every rank has reached its own `mark`.
void wait_for_all(const Meeting& meeting, OwnedEvent DeviceMarks::* mark, Stream stream) {
  for (const Visit& visit : meeting.visits()) { stream.wait_for((visit.marks->*mark).get()); }
}

}  // namespace

LocalDeviceCommunicator::LocalDeviceCommunicator(std::shared_ptr<LocalRanks> ranks,
                                                 std::shared_ptr<LocalChannel> channel, int rank,
                                                 Instruments instruments, Device& device,
                                                 const kernels::Table& kernels)
    : Communicator{rank, channel->size(), channel->members()},
      ranks_{std::move(ranks)},
      channel_{std::move(channel)},
      instruments_{instruments},
      device_{device},
      kernels_{kernels},
      marks_{make_marks(device)} {}

void LocalDeviceCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  try {
    ranks_->plane(job_rank(rank())).check_alive();
    // Made before the ranks meet: after that, nothing here may fail for lack of memory.
    DeviceHands hands{device_, kernels_, stream};
    Mover mover{*ranks_, *channel_, rank(), hands};
    const std::shared_ptr<Meeting> meeting = ranks_->join({.channel = channel_,
                                                           .kind = MeetingKind::batch,
                                                           .sequence = next_batch_++,
                                                           .rank = rank(),
                                                           .batch = &batch,
                                                           .marks = &marks_});
    enqueue(batch, *meeting, mover, stream);
  } catch (...) {
    stream.state()->end_with(std::current_exception());
    throw;
  }
}

// All ranks are in the meeting and stay to its end, whatever fails here: otherwise they would wait
// for this one, or it would leave while they read its batch.
void LocalDeviceCommunicator::enqueue(const Batch& batch, Meeting& meeting, Mover& mover,
                                      Stream stream) {
  std::exception_ptr error;
  std::optional<StreamWatch> watch;
  const auto attempt = [&](const std::function<void()>& work) {
    if (error) { return; }
    try {
      work();
    } catch (...) { error = std::current_exception(); }
  };
  attempt([&] {
    const std::uint64_t sequence = meeting.visits()[static_cast<std::size_t>(rank())].sequence;
    watch.emplace(instruments_, stream, job_rank(rank()), sequence);
    stream.record(marks_.ready.get());
  });
  ranks_->sync(meeting);
  attempt([&] {
    wait_for_all(meeting, &DeviceMarks::ready, stream);
    mover.first(batch, meeting.visits());
    stream.record(marks_.first.get());
  });
  ranks_->sync(meeting);
  attempt([&] { wait_for_all(meeting, &DeviceMarks::first, stream); });
  if (Mover::has_second(batch)) {
    attempt([&] {
      mover.second(batch, meeting.visits());
      stream.record(marks_.second.get());
    });
    ranks_->sync(meeting);
    attempt([&] { wait_for_all(meeting, &DeviceMarks::second, stream); });
  }
  attempt([&] { watch->end(batch, rank(), size()); });
  // Once all have enqueued their waits, events may be recorded again.
  ranks_->sync(meeting);
  if (!error) { return; }
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& cause) {
    ranks_->plane(job_rank(rank())).abort_for(cause);
    throw;
  }
}

std::vector<std::string> LocalDeviceCommunicator::do_exchange(std::string message) {
  return exchange_texts(*ranks_, channel_, rank(), next_exchange_++, message);
}

std::unique_ptr<Communicator> LocalDeviceCommunicator::do_split(const RankGroup& group) {
  const std::uint64_t nth = next_split_++;
  return std::make_unique<LocalDeviceCommunicator>(ranks_, ranks_->split(*channel_, nth, group),
                                                   group.rank, instruments_.of_split(nth), device_,
                                                   kernels_);
}

std::vector<std::size_t> LocalDeviceCommunicator::sent_to_each() const {
  return ranks_->traffic()->sent_by(job_rank(rank()));
}

std::string LocalDeviceCommunicator::do_name(int job_rank) const {
  return ranks_->plane(job_rank).names().of(job_rank);
}

void LocalDeviceCommunicator::do_abort(std::string_view reason) noexcept {
  ranks_->plane(job_rank(rank())).abort(reason);
}

// A submitted batch is enqueued on every rank: nothing is left to withdraw.
void LocalDeviceCommunicator::do_withdraw() noexcept {
  ranks_->withdraw(*channel_, rank(), next_batch_);
}

}  // namespace tessera::comm
