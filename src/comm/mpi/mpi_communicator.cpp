#include "comm/mpi/mpi_communicator.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <span>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/mpi/mpi_channel.hpp"
#include "comm/mpi/mpi_mover.hpp"
#include "comm/rank_split.hpp"
#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// No message tells where a missing rank waits, whether the call is of a group or of all ranks.
std::string late_text(const MpiControlPlane& control, std::string_view call,
                      std::chrono::milliseconds waited, const std::vector<int>& peers) {
  return control.has_groups()
             ? missing_in_group_text(control.names(), call, control.rank(), waited, peers)
             : missing_text(control.names(), call, control.rank(), waited, peers);
}

/// Waits for ranks to make an exchange.
class AtExchange : public MpiWait {
 public:
  AtExchange(std::string_view channel, std::uint64_t sequence,
             const MpiControlPlane& control) noexcept
      : channel_{channel}, sequence_{sequence}, control_{control} {}
  [[nodiscard]] std::string late(std::chrono::milliseconds waited,
                                 const std::vector<int>& peers) const final {
    return late_text(control_, called(), waited, peers);
  }
  [[nodiscard]] std::string ended(int peer) const final {
    return ended_text(control_.names(), called(), control_.rank(), peer);
  }

 private:
  [[nodiscard]] std::string called() const { return call_text("exchange", channel_, sequence_); }

  std::string_view channel_;
  std::uint64_t sequence_;
  const MpiControlPlane& control_;
};

/// Waits for ranks to end their run.
class AtEnd final : public AtExchange {
 public:
  explicit AtEnd(const MpiControlPlane& control) noexcept
      : AtExchange{"end of the run", 0, control} {}
  [[nodiscard]] bool at_end() const noexcept override { return true; }
};

/// One rank's part in one batch, which the stream runs.
class BatchTask {
 public:
  BatchTask(std::shared_ptr<MpiChannel> channel, std::uint64_t sequence, Batch batch)
      : channel_{std::move(channel)}, sequence_{sequence}, batch_{std::move(batch)} {}

  void operator()() {
    do_or_abort(control(), [this] {
      delay(DelayPoint::before);
      run();
      delay(DelayPoint::after);
    });
  }

 private:
  /// Waits for ranks to announce the batch; until all have, it can be withdrawn.
  class Coming final : public MpiWait {
   public:
    explicit Coming(const BatchTask& task) noexcept : task_{task} {}
    void check() const override { task_.check_wanted(); }
    [[nodiscard]] std::string late(std::chrono::milliseconds waited,
                                   const std::vector<int>& peers) const override {
      return late_text(task_.control(), task_.called(), waited, peers);
    }
    [[nodiscard]] std::string ended(int peer) const override {
      return ended_text(task_.control().names(), task_.called(), task_.control().rank(), peer);
    }

   private:
    const BatchTask& task_;
  };
  /// Waits for the data of ranks that have announced it.
  class Moving final : public MpiWait {
   public:
    explicit Moving(const BatchTask& task) noexcept : task_{task} {}
    [[nodiscard]] std::string late(std::chrono::milliseconds waited,
                                   const std::vector<int>& peers) const override {
      return stopped_text(task_.control().names(), task_.called(), task_.control().rank(), waited,
                          peers);
    }
    [[nodiscard]] std::string ended(int peer) const override {
      return ended_text(task_.control().names(), task_.called(), task_.control().rank(), peer);
    }

   private:
    const BatchTask& task_;
  };

  void run() {
    const MpiWorkspaces::Lease lease{channel_->line->workspaces};
    const MpiRoute route = channel_->batch_route(sequence_);
    check_wanted();
    control().check_alive();
    if (channel_->size() > 1) { meet(*lease, route); }
    const std::int64_t begin_ns = trace::now_ns();
    MpiMover{control(), *lease, route, Moving{*this}}.run(batch_);
    record_collectives(channel_->instruments, batch_, channel_->rank, channel_->size(), begin_ns,
                       trace::now_ns());
  }

  /// Nothing moves before every rank knows that all are here with the same batch.
  void meet(MpiWorkspace& work, const MpiRoute& route) {
    encode(batch_, work.code);
    work.hash = XXH3_64bits(work.code.data(), work.code.size());
    MpiRequests& requests = work.requests[0];
    const auto hashes = std::span{work.hashes}.first(route.members.size());
    {
      const MpiCalls calls{control().process()};
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        hashes[i] = work.hash;
        const int peer = route.members[i];
        if (peer == control().rank()) { continue; }
        requests.receive(route.comm, &hashes[i], sizeof hashes[i], peer, route.tag);
        requests.send(route.comm, &work.hash, sizeof work.hash, peer, route.tag);
      }
    }
    control().wait(requests, Coming{*this});
    const auto same = [&](std::uint64_t hash) { return hash == work.hash; };
    if (!std::ranges::all_of(hashes, same)) { disagree(work, route); }
  }

  /// Every member sees that hashes differ, calls this, and gets the same text.
  [[noreturn]] void disagree(const MpiWorkspace& work, const MpiRoute& route) {
    std::vector<Batch> batches;
    for (const std::string& code : control().exchange(route, work.code, Moving{*this})) {
      batches.push_back(decode(code));
    }
    std::vector<const Batch*> all;
    for (const Batch& batch : batches) { all.push_back(&batch); }
    const auto name_of = [&](int rank) {
      return control().names().of(route.members[static_cast<std::size_t>(rank)]);
    };
    const std::string difference =
        first_difference(all, name_of).value_or("the hashes of equal batches");
    control().fail_and_throw(disagreement_text(channel_->name, sequence_, difference),
                             route.members.front());
  }

  void check_wanted() const {
    if (sequence_ < channel_->withdrawn) { throw Aborted{withdrawn_text(called())}; }
  }
  [[nodiscard]] std::string called() const {
    return call_text(describe(batch_), channel_->name, sequence_);
  }
  [[nodiscard]] MpiControlPlane& control() const noexcept { return *channel_->control; }
  void delay(DelayPoint point) const {
    inject_delay(channel_->instruments, control().rank(), sequence_, point);
  }

  std::shared_ptr<MpiChannel> channel_;
  std::uint64_t sequence_;
  Batch batch_;
};

}  // namespace

MpiCommunicator::MpiCommunicator(const std::shared_ptr<MpiControlPlane>& control, MpiKind kind,
                                 Device& device, MemoryTracker& memory, Instruments instruments)
    : MpiCommunicator{std::shared_ptr<MpiChannel>{new MpiChannel{
          .control = control,
          .line = std::make_shared<MpiLine>(control->process(), kind, device, memory),
          .number = 0,
          .name = kind == MpiKind::gather ? "gather" : "reduce",
          .members = control->everyone(),
          .rank = control->rank(),
          .instruments = instruments}}} {}

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiChannel> channel)
    : Communicator{channel->rank, channel->size(), channel->members},
      channel_{std::move(channel)} {}

void MpiCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  channel_->control->check_alive();
  BatchTask task{channel_, next_batch_, std::move(batch)};
  ++next_batch_;  // batches match in the order of submission
  enqueue(stream, std::move(task));
}

std::vector<std::string> MpiCommunicator::do_exchange(std::string message) {
  MpiControlPlane& control = *channel_->control;
  control.check_alive();
  const std::uint64_t sequence = next_exchange_++;
  return control.exchange(channel_->text_route(sequence), message,
                          AtExchange{channel_->name, sequence, control});
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
  const int most = channels_of(channel_->control->process().tags());
  if (number >= most) {
    throw ConfigError{fmt::format(
        "split \"{}\": {} communicators have been split from {} in this run, and the tags of {} "
        "allow no more; keep one that has the same groups (World::split does)",
        group.name, most - 1, line.kind == MpiKind::gather ? "gather" : "reduce",
        mpi_library_version())};
  }
  line.next_channel = number + 1;
  channel_->control->note_split();
  return std::unique_ptr<MpiCommunicator>{new MpiCommunicator{std::shared_ptr<MpiChannel>{
      new MpiChannel{.control = channel_->control,
                     .line = channel_->line,
                     .number = number,
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

void meet_at_end(MpiControlPlane& control) {
  control.check_alive();
  (void)control.exchange({control.process().control(), kEndTag, control.everyone(), control.rank()},
                         {}, AtEnd{control});
}

}  // namespace tessera
