#include "comm/local/local_communicator.hpp"

#include "comm/control/local/exchange_texts.hpp"
#include "comm/local/mover.hpp"
#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

/// One rank's part in one batch, which the stream runs. It owns what peers read, so it does not
/// refer to the communicator.
class BatchTask {
 public:
  BatchTask(std::shared_ptr<LocalRanks> ranks, const Visit& visit, Batch batch,
            const Instruments& instruments)
      : ranks_{std::move(ranks)},
        visit_{visit},
        batch_{std::move(batch)},
        mover_{*ranks_, *visit.channel, visit.rank, host_hands()},
        instruments_{instruments} {}

  void operator()() {
    do_or_abort(ranks_->plane(job_rank()), [this] {
      delay(DelayPoint::before);
      run();
      delay(DelayPoint::after);
    });
  }

 private:
  void run() {
    visit_.batch = &batch_;  // only here is the task at its final address
    const std::shared_ptr<Meeting> meeting = ranks_->join(visit_);
    const std::int64_t begin_ns = trace::now_ns();
    mover_.first(batch_, meeting->visits());
    if (Mover::has_second(batch_)) {
      ranks_->sync(*meeting);
      mover_.second(batch_, meeting->visits());
    }
    ranks_->sync(*meeting);
    record_collectives(instruments_, batch_, visit_.rank, visit_.channel->size(), begin_ns,
                       trace::now_ns());
  }

  [[nodiscard]] int job_rank() const noexcept { return visit_.channel->job_rank(visit_.rank); }

  void delay(DelayPoint point) const {
    inject_delay(instruments_, job_rank(), visit_.sequence, point);
  }

  std::shared_ptr<LocalRanks> ranks_;
  Visit visit_;
  Batch batch_;
  Mover mover_;
  Instruments instruments_;
};

}  // namespace

LocalCommunicator::LocalCommunicator(std::shared_ptr<LocalRanks> ranks,
                                     std::shared_ptr<LocalChannel> channel, int rank,
                                     Instruments instruments)
    : Communicator{rank, channel->size(), channel->members()},
      ranks_{std::move(ranks)},
      channel_{std::move(channel)},
      instruments_{instruments} {}

void LocalCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  ranks_->plane(job_rank(rank())).check_alive();
  const Visit visit{
      .channel = channel_, .kind = MeetingKind::batch, .sequence = next_batch_, .rank = rank()};
  BatchTask task{ranks_, visit, std::move(batch), instruments_};
  ++next_batch_;  // batches match in the order of submission
  device::enqueue(stream, std::move(task));
}

std::vector<std::string> LocalCommunicator::do_exchange(std::string message) {
  return exchange_texts(*ranks_, channel_, rank(), next_exchange_++, message);
}

std::unique_ptr<Communicator> LocalCommunicator::do_split(const RankGroup& group) {
  const std::uint64_t nth = next_split_++;
  return std::make_unique<LocalCommunicator>(ranks_, ranks_->split(*channel_, nth, group),
                                             group.rank, instruments_.of_split(nth));
}

std::vector<std::size_t> LocalCommunicator::sent_to_each() const {
  return ranks_->traffic()->sent_by(job_rank(rank()));
}

std::string LocalCommunicator::do_name(int job_rank) const {
  return ranks_->plane(job_rank).names().of(job_rank);
}

void LocalCommunicator::do_abort(std::string_view reason) noexcept {
  ranks_->plane(job_rank(rank())).abort(reason);
}

void LocalCommunicator::do_withdraw() noexcept {
  ranks_->withdraw(*channel_, rank(), next_batch_);
}

}  // namespace tessera::comm
