#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/batch.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

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
/// Threads: one thread at a time, except `abort`, which any thread may call.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// "local", "mpi", "nccl".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;

  /// *Collective.* Issues all of `batch` on `stream` as one unit.
  void submit(Batch batch, Stream stream);

  /// *Collective.* Every rank's `message`, by rank. Control path: host memory, small, blocking.
  [[nodiscard]] std::vector<std::string> exchange(std::string message);

  /// Ends the group: pending and later calls on every rank fail with CommError carrying `reason`.
  /// Does not wait. Idempotent: the first reason stays.
  void abort(std::string_view reason) noexcept { do_abort(reason); }

  /// Takes back what this rank has submitted and has not begun to move: its streams end with
  /// CommError, so that they can be drained without waiting for anyone. The peers are not told and
  /// wait for this rank until `abort` or their deadline. For a rank that is about to fail, whose
  /// buffers are going away before the reason is known (World::quiesce). Nothing happens, and the
  /// communicator stays usable, if all has begun. Does not wait. The submitting thread.
  void withdraw() noexcept { do_withdraw(); }

 protected:
  Communicator(int rank, int size) noexcept : rank_{rank}, size_{size} {}

 private:
  // Backends only move bytes: the contract is checked above, once, for all of them.
  virtual void do_submit(Batch batch, Stream stream) = 0;
  virtual std::vector<std::string> do_exchange(std::string message) = 0;
  virtual void do_abort(std::string_view reason) noexcept = 0;
  virtual void do_withdraw() noexcept = 0;

  int rank_;
  int size_;
};

}  // namespace tessera
