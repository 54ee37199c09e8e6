#include "comm/local/local_communicator.hpp"

#include <fmt/format.h>

#include <exception>

#include "comm/local/exchange_texts.hpp"
#include "comm/local/mover.hpp"
#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// One rank's part in one batch: what the stream runs. It owns what the peers look at, so it needs
/// nothing of the communicator's.
class BatchTask {
 public:
  BatchTask(std::shared_ptr<LocalGroup> group, const Visit& visit, Batch batch,
            const Instruments& instruments)
      : group_{std::move(group)},
        visit_{visit},
        batch_{std::move(batch)},
        mover_{*group_, *visit.channel, visit.rank, host_hands()},
        instruments_{instruments} {}

  void operator()() {
    try {
      delay(Moment::before);
      run();
      delay(Moment::after);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {  // of this rank alone: the peers must not wait for it
      group_->abort(fmt::format("rank {}: {}", job_rank(), error.what()));
      throw;
    }
  }

 private:
  void run() {
    visit_.batch = &batch_;  // only here has the task come to rest in memory
    const std::shared_ptr<Meeting> meeting = group_->join(visit_);
    const std::int64_t begin_ns = trace::now_ns();
    mover_.first(batch_, meeting->visits());
    if (Mover::has_second(batch_)) {
      group_->sync(*meeting);
      mover_.second(batch_, meeting->visits());
    }
    group_->sync(*meeting);
    record_collectives(instruments_, batch_, visit_.rank, visit_.channel->size(), begin_ns,
                       trace::now_ns());
  }

  [[nodiscard]] int job_rank() const noexcept { return visit_.channel->job_rank(visit_.rank); }

  void delay(Moment moment) const {
    inject_delay(instruments_, job_rank(), visit_.sequence, moment);
  }

  std::shared_ptr<LocalGroup> group_;
  Visit visit_;
  Batch batch_;
  Mover mover_;
  Instruments instruments_;
};

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalGroup> group,
                                     std::shared_ptr<LocalChannel> channel, int rank,
                                     Instruments instruments)
    : Communicator{rank, channel->size(), channel->members()},
      group_{std::move(group)},
      channel_{std::move(channel)},
      instruments_{instruments} {}

void LocalCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  group_->check_alive(job_rank(rank()));
  const Visit visit{
      .channel = channel_, .kind = MeetingKind::batch, .sequence = next_batch_, .rank = rank()};
  BatchTask task{group_, visit, std::move(batch), instruments_};
  ++next_batch_;  // the order of submitting is the order of matching
  enqueue(stream, std::move(task));
}

std::vector<std::string> LocalCommunicator::do_exchange(std::string message) {
  return exchange_texts(*group_, channel_, rank(), next_exchange_++, message);
}

std::unique_ptr<Communicator> LocalCommunicator::do_split(const RankGroup& group) {
  const std::uint64_t nth = next_split_++;
  return std::make_unique<LocalCommunicator>(group_, group_->split(*channel_, nth, group),
                                             group.rank, instruments_.of_split(nth));
}

std::vector<std::size_t> LocalCommunicator::sent_to_each() const {
  return group_->traffic()->sent_by(job_rank(rank()));
}

void LocalCommunicator::do_abort(std::string_view reason) noexcept {
  group_->abort(reason);
}

void LocalCommunicator::do_withdraw() noexcept {
  group_->withdraw(*channel_, rank(), next_batch_);
}

}  // namespace tessera
