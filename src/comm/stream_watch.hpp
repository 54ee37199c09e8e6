#pragma once

#include <cstdint>
#include <memory>

#include "comm/instruments.hpp"
#include "tessera/comm/batch.hpp"
#include "tessera/device/stream.hpp"

namespace tessera::comm {

/// Observes or delays one batch on a device's stream, as `Instruments` say. The work that it
/// enqueues before and after the batch does not refer to the communicator, which may be destroyed
/// by then.
class StreamWatch {
 public:
  /// Enqueued before batch `sequence` of rank `job_rank` (of the job).
  StreamWatch(const Instruments& instruments, Stream stream, int job_rank, std::uint64_t sequence);

  /// Enqueued after the batch, which this rank moved as `rank` of `ranks`.
  void end(const Batch& batch, int rank, int ranks) const;

 private:
  Instruments instruments_;
  Stream stream_;
  int job_rank_;
  std::uint64_t sequence_;
  std::shared_ptr<std::int64_t> begin_ns_;  // null unless records are kept
};

}  // namespace tessera::comm
