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

/// Which group each rank of a communicator belongs to: any numbers from 0 on.
using GroupOf = std::function<int(int rank)>;

/// One of the groups that a communicator's ranks are divided into.
struct RankGroup {
  std::string name;
  int group = 0;             ///< what GroupOf gives for its members
  int rank = 0;              ///< this rank's place among them
  std::vector<int> members;  ///< in ascending order, as the whole job counts its ranks
  std::uint64_t code = 0;    ///< of the name and the groups of all ranks: the same on every rank
};

/// A fixed group of ranks that move tensors between each other.
///
/// Order:   *collective* calls are made by all ranks, in the same order. They are matched by that
///          order, so batches submitted on different streams may overtake each other.
/// Time:    `submit` enqueues on `stream` and returns; the data has moved when the stream gets
///          there. Buffers stay alive and untouched until then. No collective executes on the
///          thread that submits it unless `stream` itself is the caller's.
/// Errors:  ContractError before anything is sent: on all ranks alike where it concerns what must
///          agree, on one rank for its own addresses (null, overlap). CommError once a peer is
///          lost, late (deadline), or has issued another batch than this rank (the text names the
///          first entry that differs); it comes from the stream, and from every later call.
///          Ranks in errors are those of the whole job, also where they are a group of it.
/// Threads: one thread at a time, except `abort`, which any thread may call.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// "local", "mpi", "nccl", "simulated": for messages. What a communicator can do is asked below.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Whether the ranks read each other's memory, so that work on one rank's streams waits for work
  /// on its peers' streams. One rank's work cannot be captured as a graph of its own then.
  [[nodiscard]] virtual bool shares_memory() const noexcept { return false; }

  /// *Collective.* Issues all of `batch` on `stream` as one unit.
  void submit(Batch batch, Stream stream);

  /// *Collective.* Every rank's `message`, by rank. Control path: host memory, small, blocking.
  /// ContractError on all ranks, with nothing changed, if another rank splits instead.
  [[nodiscard]] std::vector<std::string> exchange(const std::string& message);

  /// *Collective.* The communicator of this rank's group: of the ranks for which `group_of` gives
  /// the same number, in the order of their ranks here. `name` is what its errors call it ("shard
  /// gather"). All ranks give the same rule and name: each then knows all groups, also one that is
  /// simulated and has nobody to ask. Blocks.
  ///
  /// Its calls are matched apart from this one's, so that both can be under way at once, on any
  /// streams. A failure (abort, a lost or late rank, differing batches) of one ends this one and
  /// all that were split from it, on all ranks; `withdraw` is for each alone, but see there.
  /// Records and delays are as this one's. It lives no longer than this one. What was submitted
  /// completes when it has gone, too: with NCCL its end waits for that, by the deadline at the
  /// latest, or takes it back, as `withdraw` does, where an exception unwinds the rank's thread.
  ///
  /// Errors: ContractError on all ranks, with nothing changed, if a group is negative, if the
  ///         ranks' rules or names differ, or if one makes another call. Otherwise as `exchange`.
  [[nodiscard]] std::unique_ptr<Communicator> split(const GroupOf& group_of,
                                                    const std::string& name);

  /// Ends the group: pending and later calls on every rank fail with CommError carrying `reason`.
  /// Does not wait. Idempotent: the first reason stays.
  void abort(std::string_view reason) noexcept { do_abort(reason); }

  /// Takes back what this rank has submitted and has not begun to move: its streams end with
  /// CommError, so that they can be drained without waiting for anyone. The peers are not told and
  /// wait for this rank until `abort` or their deadline. For a rank that is about to fail, whose
  /// buffers are going away before the reason is known (World::quiesce). Nothing happens, and the
  /// communicator stays usable, if all has begun. With NCCL all that has not finished is taken
  /// back, and with it all of the rank's communicators end. Does not wait. The submitting thread.
  void withdraw() noexcept { do_withdraw(); }

 protected:
  /// `job_ranks`: what the whole job calls the ranks, by rank; empty if it calls them the same.
  Communicator(int rank, int size, std::vector<int> job_ranks = {}) noexcept
      : rank_{rank}, size_{size}, job_ranks_{std::move(job_ranks)} {}

  [[nodiscard]] int job_rank(int rank) const noexcept {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
  }

 private:
  friend class World;  // which splits only what it has not split before

  // Backends only move bytes: the contract is checked above, once, for all of them.
  virtual void do_submit(Batch batch, Stream stream) = 0;
  virtual std::vector<std::string> do_exchange(std::string message) = 0;
  virtual std::unique_ptr<Communicator> do_split(const RankGroup& group) = 0;
  virtual void do_abort(std::string_view reason) noexcept = 0;
  virtual void do_withdraw() noexcept = 0;

  /// *Collective.* The group that `split` is to make a communicator of.
  [[nodiscard]] RankGroup agree_on_group(const GroupOf& group_of, const std::string& name);

  int rank_;
  int size_;
  std::vector<int> job_ranks_;
};

}  // namespace tessera
