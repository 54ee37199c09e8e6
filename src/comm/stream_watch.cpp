#include "comm/stream_watch.hpp"

namespace tessera::comm {

StreamWatch::StreamWatch(const Instruments& instruments, Stream stream, int job_rank,
                         std::uint64_t sequence)
    : instruments_{instruments}, stream_{stream}, job_rank_{job_rank}, sequence_{sequence} {
  if (instruments_.delays) {
    stream_.call([instruments, job_rank, sequence] {
      inject_delay(instruments, job_rank, sequence, DelayPoint::before);
    });
  }
  if (instruments_.recorder != nullptr) {
    begin_ns_ = std::make_shared<std::int64_t>(0);
    stream_.tell_time([begin = begin_ns_](std::int64_t ns) { *begin = ns; });
  }
}

void StreamWatch::end(const Batch& batch, int rank, int ranks) const {
  if (instruments_.recorder != nullptr) {
    stream_.tell_time(
        [instruments = instruments_, batch, rank, ranks, begin = begin_ns_](std::int64_t ns) {
          record_collectives(instruments, batch, rank, ranks, *begin, ns);
        });
  }
  if (instruments_.delays) {
    stream_.call([instruments = instruments_, job_rank = job_rank_, sequence = sequence_] {
      inject_delay(instruments, job_rank, sequence, DelayPoint::after);
    });
  }
}

}  // namespace tessera::comm
