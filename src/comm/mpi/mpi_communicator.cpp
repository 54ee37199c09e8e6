#include "comm/mpi/mpi_communicator.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "comm/aborted.hpp"
#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/failure_texts.hpp"
#include "comm/mpi/mpi_mover.hpp"
#include "comm/mpi/mpi_workspace.hpp"
#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

/// What a channel's batches share.
struct MpiChannel {
  std::shared_ptr<MpiGroup> group;
  MpiTexts kind;
  MPI_Comm comm;
  Instruments instruments;
  MpiWorkspaces workspaces;
  std::atomic<std::uint64_t> withdrawn = 0;  ///< the end of what this rank took back

  [[nodiscard]] std::string_view name() const noexcept {
    return kind == MpiTexts::gather ? "gather" : "reduce";
  }
};

namespace {

constexpr int kCommStatus = 4;

/// Waits for ranks to come to an exchange.
class AtExchange : public MpiWait {
 public:
  AtExchange(std::string_view channel, std::uint64_t sequence, int rank) noexcept
      : channel_{channel}, sequence_{sequence}, rank_{rank} {}
  [[nodiscard]] std::string late(std::chrono::milliseconds waited,
                                 const std::vector<int>& peers) const final {
    return missing_text(called(), rank_, waited, peers);
  }
  [[nodiscard]] std::string ended(int peer) const final {
    return ended_text(called(), rank_, peer);
  }

 private:
  [[nodiscard]] std::string called() const { return call_text("exchange", channel_, sequence_); }

  std::string_view channel_;
  std::uint64_t sequence_;
  int rank_;
};

/// Waits for ranks to come to the end of a run.
class AtEnd final : public AtExchange {
 public:
  explicit AtEnd(int rank) noexcept : AtExchange{"end of the run", 0, rank} {}
  [[nodiscard]] bool at_end() const noexcept override { return true; }
};

/// One rank's part in one batch: what the stream runs.
class BatchTask {
 public:
  BatchTask(std::shared_ptr<MpiChannel> channel, std::uint64_t sequence, Batch batch)
      : channel_{std::move(channel)}, sequence_{sequence}, batch_{std::move(batch)} {}

  void operator()() {
    try {
      delay(Moment::before);
      run();
      delay(Moment::after);
    } catch (const CommError&) {
      throw;
    } catch (const std::exception& error) {  // of this rank alone: the peers must not wait for it
      group().abort(fmt::format("rank {}: {}", group().rank(), error.what()), kCommStatus);
      throw;
    }
  }

 private:
  /// Waits for ranks to come to the batch; until all have, it can be taken back.
  class Coming final : public MpiWait {
   public:
    explicit Coming(const BatchTask& task) noexcept : task_{task} {}
    void check() const override { task_.check_wanted(); }
    [[nodiscard]] std::string late(std::chrono::milliseconds waited,
                                   const std::vector<int>& peers) const override {
      return missing_text(task_.called(), task_.group().rank(), waited, peers);
    }
    [[nodiscard]] std::string ended(int peer) const override {
      return ended_text(task_.called(), task_.group().rank(), peer);
    }

   private:
    const BatchTask& task_;
  };
  /// Waits for the data of ranks that have come.
  class Moving final : public MpiWait {
   public:
    explicit Moving(const BatchTask& task) noexcept : task_{task} {}
    [[nodiscard]] std::string late(std::chrono::milliseconds waited,
                                   const std::vector<int>& peers) const override {
      return stopped_text(task_.called(), task_.group().rank(), waited, peers);
    }
    [[nodiscard]] std::string ended(int peer) const override {
      return ended_text(task_.called(), task_.group().rank(), peer);
    }

   private:
    const BatchTask& task_;
  };

  void run() {
    const MpiWorkspaces::Lease lease{channel_->workspaces};
    check_wanted();
    group().check_alive();
    if (group().size() > 1) { meet(*lease); }
    const std::int64_t begin_ns = trace::now_ns();
    MpiMover{group(), *lease, channel_->comm, tag(), Moving{*this}}.run(batch_);
    record_collectives(channel_->instruments, batch_, group().rank(), group().size(), begin_ns);
  }

  /// Nothing moves before every rank has seen that all are here with the same batch.
  void meet(MpiWorkspace& work) {
    encode(batch_, work.code);
    work.hash = XXH3_64bits(work.code.data(), work.code.size());
    MpiRequests& requests = work.requests[0];
    {
      const MpiCalls calls{group().process()};
      for (int peer = 0; peer < group().size(); ++peer) {
        std::uint64_t& hash = work.hashes[static_cast<std::size_t>(peer)];
        hash = work.hash;
        if (peer == group().rank()) { continue; }
        requests.receive(channel_->comm, &hash, sizeof hash, peer, tag());
        requests.send(channel_->comm, &work.hash, sizeof work.hash, peer, tag());
      }
    }
    group().wait(requests, Coming{*this});
    const auto same = [&](std::uint64_t hash) { return hash == work.hash; };
    if (!std::all_of(work.hashes.begin(), work.hashes.end(), same)) { disagree(work); }
  }

  /// Every rank sees that hashes differ, comes here, and finds the same text.
  [[noreturn]] void disagree(const MpiWorkspace& work) {
    std::vector<Batch> batches;
    for (const std::string& code :
         group().exchange(channel_->comm, tag(), work.code, Moving{*this})) {
      batches.push_back(decode(code));
    }
    std::vector<const Batch*> all;
    for (const Batch& batch : batches) { all.push_back(&batch); }
    const std::string difference = first_difference(all).value_or("the hashes of equal batches");
    group().fail_and_throw(disagreement_text(channel_->name(), sequence_, difference),
                           Finding::of_every_rank);
  }

  void check_wanted() const {
    if (sequence_ < channel_->withdrawn) { throw Aborted{called() + " was withdrawn"}; }
  }
  [[nodiscard]] std::string called() const {
    return call_text(describe(batch_), channel_->name(), sequence_);
  }
  [[nodiscard]] MpiGroup& group() const noexcept { return *channel_->group; }
  [[nodiscard]] int tag() const noexcept { return batch_tag(sequence_, group().process().tags()); }
  void delay(Moment moment) const {
    inject_delay(channel_->instruments, group().rank(), sequence_, moment);
  }

  std::shared_ptr<MpiChannel> channel_;
  std::uint64_t sequence_;
  Batch batch_;
};

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiGroup> group, MpiTexts kind, Device& device,
                                 MemoryTracker& memory, Instruments instruments)
    : Communicator{group->rank(), group->size()},
      channel_{new MpiChannel{
          group, kind,
          kind == MpiTexts::gather ? group->process().gather() : group->process().reduce(),
          instruments, MpiWorkspaces{group->process(), device, memory}}} {}

void MpiCommunicator::do_submit(Batch batch, Stream stream) {
  expects(static_cast<bool>(stream), "submit: no stream");
  channel_->group->check_alive();
  BatchTask task{channel_, next_batch_, std::move(batch)};
  ++next_batch_;  // the order of submitting is the order of matching
  enqueue(stream, std::move(task));
}

std::vector<std::string> MpiCommunicator::do_exchange(std::string message) {
  MpiGroup& group = *channel_->group;
  group.check_alive();
  const std::uint64_t sequence = next_exchange_++;
  return group.exchange(group.process().control(),
                        text_tag(channel_->kind, sequence, group.process().tags()), message,
                        AtExchange{channel_->name(), sequence, rank()});
}

std::unique_ptr<Communicator> MpiCommunicator::do_split(const RankGroup& group) {
  throw ConfigError{
      fmt::format("split \"{}\": ranks that talk through mpi cannot be split", group.name)};
}

void MpiCommunicator::do_abort(std::string_view reason) noexcept {
  channel_->group->abort(reason, kCommStatus);
}

void MpiCommunicator::do_withdraw() noexcept {
  channel_->withdrawn = next_batch_;
}

void meet_at_end(MpiGroup& group) {
  group.check_alive();
  (void)group.exchange(group.process().control(),
                       text_tag(MpiTexts::end, 0, group.process().tags()), {}, AtEnd{group.rank()});
}

}  // namespace tessera
