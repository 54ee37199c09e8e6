#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control/control_plane.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/issued_batches.hpp"
#include "comm/control/tcp/joining.hpp"
#include "comm/control/tcp/messages.hpp"
#include "comm/control/tcp/rank_groups.hpp"
#include "comm/control/tcp/socket.hpp"

namespace tessera::comm {

/// The control plane of one rank of a job of processes. The ranks meet at rank 0's address and stay
/// connected to its coordinator, so that the end of a process is noticed at once. A thread of the
/// control plane reads, also while the rank's own thread is busy.
///
/// Batches move elsewhere (NCCL, MPI) and are only noted here: ranks that issue different ones get
/// an error within moments, without any rank waiting for it.
///
/// Errors:  CommError once the job has failed; Aborted where another rank reports it.
/// Threads: any, but one at a time for calls of one kind.
class TcpControlPlane final : public ControlPlane {
 public:
  /// Blocks until all ranks are here. Throws ConfigError if the job is invalid (two processes of
  /// one rank, another number of processes, another build, the port taken) or not all arrive within
  /// `patience`; CommError if rank 0 is not found. `deadline` applies to calls. `listener` is rank
  /// 0's, if it listens already.
  TcpControlPlane(const JobPlace& place, std::chrono::milliseconds patience,
                  std::chrono::milliseconds deadline, Socket listener = {});
  ~TcpControlPlane() override;
  TcpControlPlane(const TcpControlPlane&) = delete;
  TcpControlPlane& operator=(const TcpControlPlane&) = delete;

  /// Adds a group of `members` (in ascending order) with this rank; calls may be made in it from
  /// now on. Every member adds it with the same `number`, which no other group of the job has, and
  /// the same `name`, which errors use for its channel.
  void add_group(std::uint64_t number, const std::string& name, const std::vector<int>& members);

  /// *Collective*, within the call's group. Returns every rank's `message`, by rank.
  [[nodiscard]] std::vector<std::string> exchange(const CallSeries& call, std::string message);

  /// Notes that this rank issues a batch on `channel`, given as its `code` (encode). Returns its
  /// number.
  std::uint64_t note_batch(const CallSeries& channel, std::string code);
  /// Returns a rank of the group that ended its run without issuing batch `sequence`, if there is
  /// one.
  [[nodiscard]] std::optional<int> ended_without(const CallSeries& channel,
                                                 std::uint64_t sequence) const;
  /// Returns the error text for batch `sequence`, named `call`, still unfinished after
  /// `waited`. Briefly asks which ranks have not issued it or, if all have, which rank keeps one of
  /// them waiting in another group. The text is empty for a rank that is alone in its group, as it
  /// waits for no rank. Throws the job's failure if that comes first.
  [[nodiscard]] std::string late_text(const CallSeries& channel, std::uint64_t sequence,
                                      std::string_view call, std::chrono::milliseconds waited);

  /// Notes that the rank's own thread is held up while it submits batch `sequence`, because a peer
  /// has not issued it; without a value, that it is not held up. Ranks that wait for this one
  /// elsewhere are told.
  void note_held(const CallSeries& channel, std::optional<std::uint64_t> sequence);

  /// The same where the rank itself knows for whom it waits in batch `sequence`, or that it waits
  /// no longer.
  void note_wait(const CallSeries& channel, std::uint64_t sequence, const WaitMessage& wait);
  /// Fails the job because `wait` has lasted for `waited` in batch `sequence`, named `call`. Names
  /// only ranks that do not wait themselves. Throws the job's failure if that comes first.
  [[noreturn]] void fail_late(const CallSeries& channel, std::uint64_t sequence,
                              std::string_view call, std::chrono::milliseconds waited,
                              const WaitMessage& wait);
  /// Throws the failure that says how batches differ, once the coordinator has told it: this rank
  /// has found that the batch named `call` is not that of all ranks.
  [[noreturn]] void fail_for_difference(std::string_view call);

  /// Returns whether a rank's connection has ended before its run did.
  [[nodiscard]] bool lost_rank() const noexcept { return lost_; }

  /// Errors that name a lost rank also say what `under_way` returns: the call that this rank is in,
  /// or an empty text. Null removes the function; on return no call of it is running.
  void name_calls_by(std::function<std::string()> under_way);

 private:
  /// The coordinator's answer to the question which ranks are late.
  struct Answer {
    std::vector<int> missing;  // missing in the call
    HeldUp by = {};  // ranks that hold these up, or, if none is missing, one that made the call
    bool silent = false;   // there was no answer: this process passes nothing on
    bool unheard = false;  // there was no answer: rank 0 passes nothing on
  };

  [[nodiscard]] std::string called(const CallSeries& call, std::uint64_t sequence) const;

  void serve();
  void hear();
  void end_without_memory() noexcept;
  [[nodiscard]] bool read();
  void on_frame(Frame& frame);
  void on_lost(int rank, const std::string& who);
  [[nodiscard]] std::string coordinator_without_memory() const;
  void on_coordinators_end(const std::string& problem);
  [[nodiscard]] std::string call_under_way();
  void explain(const Frame& frame);
  void say(const Frame& frame);
  void send_issued();
  void send_waiting();

  [[nodiscard]] std::string late_text_of(std::string_view call, std::chrono::milliseconds waited,
                                         const Answer& answer, Owed owed) const;
  [[noreturn]] void fail_as(const Answer& answer, const std::string& text);
  [[nodiscard]] Answer ask_locked(std::unique_lock<std::mutex>& lock, const CallSeries& call,
                                  std::uint64_t sequence, const WaitMessage& wait = {});
  void say_held(const CallSeries& channel, std::uint64_t sequence, const WaitMessage& wait);
  [[nodiscard]] Answer unanswered() const;
  [[nodiscard]] std::optional<int> ended_without_locked(const CallSeries& call,
                                                        std::uint64_t sequence) const;
  void tell(const Failure& failure) override;
  void wake() noexcept override;
  [[nodiscard]] IssuedBatches& issued(const CallSeries& channel);

  CoordinatorConnection coordinator_{nullptr, {}, FrameReader{0}};
  Socket wake_reader_;
  Socket wake_writer_;

  std::mutex under_way_mutex_;
  std::function<std::string()> under_way_;

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  Outbox out_;
  std::string last_words_;  // a frame, made beforehand: for when there is no memory left
  std::string no_memory_;   // the text with which this rank then fails
  RankGroups groups_;       // groups that this rank is in
  CallCounts counts_;       // calls made
  std::vector<std::optional<CallCounts>>
      ended_;  // by rank: the calls it had made when its run ended
  std::map<std::pair<CallSeries, std::uint64_t>, std::vector<std::string>> texts_;
  std::map<std::pair<CallSeries, std::uint64_t>, Answer> answers_;
  std::map<CallSeries, IssuedBatches> issued_;
  std::map<CallSeries, std::uint64_t> held_;
  bool met_at_end_ = false;
  std::atomic<bool> lost_ = false;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace tessera::comm
