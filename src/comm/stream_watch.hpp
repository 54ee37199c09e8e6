#pragma once

#include <cstdint>
#include <memory>

#include "comm/instruments.hpp"
#include "tessera/comm/batch.hpp"
#include "tessera/device/stream.hpp"

namespace tessera {

/// Watches or disturbs one batch that a device's stream moves, as `Instruments` say: what it
/// enqueues stands in the stream before the batch and after it, and refers to nothing of the
/// communicator, which may be gone by then.
class StreamWatch {
 public:
  /// Stands before batch `sequence` of rank `job_rank` (of the job).
  StreamWatch(const Instruments& instruments, Stream stream, int job_rank, std::uint64_t sequence);

  /// Stands after the batch, which this rank has moved as `rank` of `ranks`.
  void end(const Batch& batch, int rank, int ranks) const;

 private:
  Instruments instruments_;
  Stream stream_;
  int job_rank_;
  std::uint64_t sequence_;
  std::shared_ptr<std::int64_t> begin_ns_;  // null unless records are kept
};

}  // namespace tessera
