#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/batch.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

/// A function that returns the number of a rank's group. Numbers are 0 or more, and may have gaps.
using GroupOf = std::function<int(int rank)>;

/// One of the groups that a communicator's ranks are divided into.
struct RankGroup {
  std::string name;          ///< what errors call the group
  int group = 0;             ///< the number that GroupOf returns for its members
  int rank = 0;              ///< this rank's index in `members`
  std::vector<int> members;  ///< ranks of the whole job, ascending
  std::uint64_t code = 0;    ///< hash of the name and of all ranks' groups: the same on every rank
};

/// A fixed group of ranks that move tensors between each other.
///
/// Order:   *collective* calls are made by all ranks, in the same order. They are matched by the
///          order of the calls, so batches submitted on different streams may overtake each other.
/// Time:    `submit` enqueues on `stream` and returns; the data has moved when the stream gets
///          there. Buffers must stay alive and untouched until then. No collective executes on the
///          thread that submits it unless `stream` is of kind *caller*.
/// Errors:  ContractError before anything is sent: on all ranks if it concerns what must agree, on
///          one rank if it concerns that rank's addresses (null, overlap). CommError once a peer is
///          lost, misses a deadline, or has issued another batch than this rank (the text names the
///          first entry that differs); the stream throws it, and so does every later call. Errors
///          name ranks by their numbers in the whole job, not in the group.
/// Threads: one thread at a time, except `abort`, which any thread may call.
class Communicator {
 public:
  /// Destroys this rank's end of the communicator; `split` describes batches still in progress.
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Returns this rank's number in the group, from 0 to size() - 1.
  [[nodiscard]] int rank() const noexcept { return rank_; }
  /// Returns the number of ranks in the group.
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Returns "local", "mpi", "nccl" or "simulated". It is meant for messages: code must not depend
  /// on it.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Returns whether the ranks read each other's memory, so that work on one rank's streams waits
  /// for work on its peers' streams. One rank's work then cannot be captured as a graph of its own.
  [[nodiscard]] virtual bool shares_memory() const noexcept { return false; }

  /// *Collective.* Issues all of `batch` on `stream` as one unit. Throws ContractError if an entry
  /// breaks the rules of Batch.
  void submit(Batch batch, Stream stream);

  /// *Collective.* Returns every rank's `message`, by rank. It blocks, and is meant for small
  /// messages of the control path. Throws ContractError on all ranks, with nothing changed, if
  /// another rank calls `split` instead.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& message);

  /// *Collective.* Makes the communicator of this rank's group: the ranks for which `group_of`
  /// returns the same number, in the order of their ranks here. Errors call it `name` ("shard
  /// gather"). All ranks give the same function and name, so that each rank knows all groups
  /// without asking. It blocks.
  ///
  /// Calls on the new communicator and calls on this one are matched separately, so that both can
  /// be in progress at once, on any streams. If one of them fails (abort, a lost or late rank,
  /// differing batches), this one and all that were split from it end on all ranks. `withdraw`
  /// affects one communicator only, except with NCCL. The new one is recorded and delayed as this
  /// one is, and must not outlive it. What was submitted to it completes even if it is destroyed
  /// first: with NCCL its destructor waits, until the deadline at most, or withdraws the batches
  /// while an exception unwinds the rank's thread.
  ///
  /// Errors: ContractError on all ranks, with nothing changed, if a group is negative, if the
  ///         ranks' functions or names differ, or if a rank makes another call. CommError as every
  ///         collective call.
  [[nodiscard]] std::unique_ptr<Communicator> split(const GroupOf& group_of,
                                                    const std::string& name);

  /// Ends the group: pending and later calls on every rank fail with CommError carrying `reason`.
  /// Does not wait. Idempotent: the first reason stays.
  void abort(std::string_view reason) noexcept { do_abort(reason); }

  /// Takes back the batches of this rank that have not begun to move data: their streams end with
  /// CommError, and can be drained without waiting for other ranks. The peers are not informed and
  /// wait for this rank until `abort` or their deadline. It is meant for a rank that is about to
  /// fail and destroys its buffers before the reason is known (World::quiesce). If every batch has
  /// begun, nothing happens and the communicator stays usable. With NCCL every unfinished batch is
  /// taken back, and all of the rank's communicators end. It does not wait. Only the thread that
  /// submits may call it.
  void withdraw() noexcept { do_withdraw(); }

 protected:
  /// Makes rank `rank` of `size` ranks. `job_ranks` has the number of each rank in the whole job;
  /// it is empty if the numbers are the same.
  Communicator(int rank, int size, std::vector<int> job_ranks = {}) noexcept
      : rank_{rank}, size_{size}, job_ranks_{std::move(job_ranks)} {}

  /// Returns the number in the whole job of rank `rank` of this group.
  [[nodiscard]] int job_rank(int rank) const noexcept {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
  }

 private:
  friend class World;  // for agree_on_group: it splits only what it has not split before

  // Backends only move bytes: the contract is checked above, once, for all of them.
  virtual void do_submit(Batch batch, Stream stream) = 0;
  virtual std::vector<std::string> do_exchange(std::string message) = 0;
  virtual std::unique_ptr<Communicator> do_split(const RankGroup& group) = 0;
  /// Allocates what it needs for its batches to run on a stream of its own, beside those of the
  /// communicator that it was split from.
  virtual void do_run_beside() {}
  virtual void do_abort(std::string_view reason) noexcept = 0;
  virtual void do_withdraw() noexcept = 0;
  /// Whether this rank answers for all others, so that none can disagree: a simulated rank.
  [[nodiscard]] virtual bool do_answer_for_all() const noexcept { return false; }
  /// Returns what rank `job_rank` of the whole job is called in errors: "rank 5 (pipe 1, shard 0)".
  [[nodiscard]] virtual std::string do_name(int job_rank) const;

  /// *Collective.* Agrees with all ranks on the groups, and returns this rank's.
  [[nodiscard]] RankGroup agree_on_group(const GroupOf& group_of, const std::string& name);

  int rank_;
  int size_;
  std::vector<int> job_ranks_;
};

}  // namespace tessera
