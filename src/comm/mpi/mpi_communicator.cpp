#include "comm/mpi/mpi_communicator.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/mpi/mpi_channel.hpp"
#include "comm/mpi/mpi_mover.hpp"
#include "comm/mpi/mpi_wait.hpp"
#include "comm/rank_split.hpp"
#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

/// One rank's part in one batch, which the stream runs.
class BatchTask {
 public:
  BatchTask(std::shared_ptr<MpiChannel> channel, std::uint64_t sequence, std::uint64_t hash,
            Batch batch)
      : channel_{std::move(channel)}, sequence_{sequence}, hash_{hash}, batch_{std::move(batch)} {}

  void operator()() {
    do_or_abort(control(), [this] {
      delay(DelayPoint::before);
      run();
      delay(DelayPoint::after);
    });
  }

 private:
  void run() {
    const MpiWorkspaces::Lease lease{channel_->line->workspaces};
    const MpiRoute route = channel_->route(sequence_);
    check_wanted();
    control().check_alive();
    if (channel_->size() > 1) { meet(*lease, route); }
    const std::int64_t begin_ns = trace::now_ns();
    const MpiWait moving = wait_for(Owed::data);
    MpiMover{*lease, route, moving}.run(batch_);
    record_collectives(channel_->instruments, batch_, channel_->rank, channel_->size(), begin_ns,
                       trace::now_ns());
  }

  /// Nothing moves before every rank knows that all are here with the same batch; until then it can
  /// be withdrawn.
  void meet(MpiWorkspace& work, const MpiRoute& route) {
    work.hash = hash_;
    MpiRequests& requests = work.requests[0];
    const auto hashes = std::span{work.hashes}.first(route.members.size());
    {
      const MpiCalls calls{process()};
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        hashes[i] = work.hash;
        const int peer = route.members[i];
        if (peer == control().rank()) { continue; }
        requests.receive(route.comm, &hashes[i], sizeof hashes[i], peer, route.tag);
        requests.send(route.comm, &work.hash, sizeof work.hash, peer, route.tag);
      }
    }
    MpiWait coming = wait_for(Owed::call);
    coming.check = [this] { check_wanted(); };
    coming.until_done(requests);
    const auto same = [&](std::uint64_t hash) { return hash == work.hash; };
    if (!std::ranges::all_of(hashes, same)) { control().fail_for_difference(called()); }
  }

  [[nodiscard]] MpiWait wait_for(Owed owed) const {
    return {.process = process(),
            .control = control(),
            .channel = channel_->batches(),
            .sequence = sequence_,
            .owed = owed,
            .called = [this] { return called(); }};
  }
  void check_wanted() const {
    if (sequence_ < channel_->withdrawn) { throw Aborted{withdrawn_text(called())}; }
  }
  [[nodiscard]] std::string called() const {
    return call_text(describe(batch_), channel_->name, sequence_);
  }
  [[nodiscard]] TcpControlPlane& control() const noexcept { return *channel_->control; }
  [[nodiscard]] MpiProcess& process() const noexcept { return channel_->line->process; }
  void delay(DelayPoint point) const {
    inject_delay(channel_->instruments, control().rank(), sequence_, point);
  }

  std::shared_ptr<MpiChannel> channel_;
  std::uint64_t sequence_;
  std::uint64_t hash_;
  Batch batch_;
};

/// A number for the group of `channel` that no other group of the job has: the ranks that agree on
/// `channel` have not seen it used.
std::uint64_t number_of(MpiKind kind, int channel, const RankGroup& group) {
  const auto unique =
      static_cast<std::uint64_t>(channel) * kMpiKinds + static_cast<std::uint64_t>(kind);
  return unique << 32U | static_cast<std::uint64_t>(group.members.front());
}

std::vector<int> all_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MpiCommunicator::MpiCommunicator(const std::shared_ptr<TcpControlPlane>& control,
                                 const std::shared_ptr<MpiLine>& line, Instruments instruments)
    : MpiCommunicator{std::shared_ptr<MpiChannel>{
          new MpiChannel{.control = control,
                         .line = line,
                         .number = 0,
                         .group = kAllRanks,
                         .name = line->kind == MpiKind::gather ? "gather" : "reduce",
                         .members = all_ranks(control->size()),
                         .rank = control->rank(),
                         .instruments = instruments}}} {}

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiChannel> channel)
    : Communicator{channel->rank, channel->size(), channel->members},
      channel_{std::move(channel)} {}

void MpiCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  channel_->control->check_alive();
  encode(batch, code_);
  const std::uint64_t hash = XXH3_64bits(code_.data(), code_.size());
  // Batches match in the order of submission.
  const std::uint64_t sequence = channel_->control->note_batch(channel_->batches(), code_);
  next_batch_ = sequence + 1;
  device::enqueue(stream, BatchTask{channel_, sequence, hash, std::move(batch)});
}

std::vector<std::string> MpiCommunicator::do_exchange(std::string message) {
  return channel_->control->exchange(channel_->texts(), std::move(message));
}

std::string MpiCommunicator::do_name(int job_rank) const {
  return channel_->control->names().of(job_rank);
}

// Ranks may have been in groups that were split a different number of times.
std::unique_ptr<Communicator> MpiCommunicator::do_split(const RankGroup& group) {
  MpiLine& line = *channel_->line;
  const int number = agree_on_highest(
      line.next_channel, group.name,
      [this](std::string text) { return do_exchange(std::move(text)); },
      [this](int rank) { return do_name(job_rank(rank)); });
  const int most = channels_of(line.process.tags());
  if (number >= most) {
    throw ConfigError{fmt::format(
        "split \"{}\": {} communicators have been split from {} in this run, and the tags of {} "
        "allow no more; keep one that has the same groups (World::split does)",
        group.name, most - 1, line.kind == MpiKind::gather ? "gather" : "reduce",
        mpi_library_version())};
  }
  line.next_channel = number + 1;
  const std::uint64_t unique = number_of(line.kind, number, group);
  channel_->control->add_group(unique, group.name, group.members);
  return std::unique_ptr<MpiCommunicator>{new MpiCommunicator{std::shared_ptr<MpiChannel>{
      new MpiChannel{.control = channel_->control,
                     .line = channel_->line,
                     .number = number,
                     .group = unique,
                     .name = group.name,
                     .members = group.members,
                     .rank = group.rank,
                     .instruments = channel_->instruments.of_split(next_split_++)}}}};
}

void MpiCommunicator::do_run_beside() {
  channel_->line->workspaces.add();
}

void MpiCommunicator::do_abort(std::string_view reason) noexcept {
  channel_->control->abort(reason);
}

void MpiCommunicator::do_withdraw() noexcept {
  channel_->withdrawn = next_batch_;
}

}  // namespace tessera::comm
