#include "comm/instruments.hpp"

#include <thread>

namespace tessera::comm {
namespace {

/// SplitMix64's finaliser: consecutive counters give unrelated numbers.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

}  // namespace

Instruments Instruments::of_split(std::uint64_t nth) const {
  constexpr std::uint64_t kSplits =
      1000;  // splits of one communicator before two share their delays
  Instruments split = *this;
  split.number = kSplits * number + kOffloadNumber + 1 + nth;
  return split;
}

void inject_delay(const Instruments& instruments, int rank, std::uint64_t sequence,
                  DelayPoint point) {
  if (!instruments.delays) { return; }
  std::uint64_t random = mix(instruments.delays->seed);
  random = mix(random ^ instruments.number);
  random = mix(random ^ static_cast<std::uint64_t>(rank));
  random = mix(random ^ (2 * sequence + static_cast<std::uint64_t>(point)));
  const auto longest = static_cast<std::uint64_t>(instruments.delays->longest.count());
  std::this_thread::sleep_for(
      std::chrono::microseconds{static_cast<std::int64_t>(random % (longest + 1))});
}

void record_collectives(const Instruments& instruments, const Batch& batch, int rank, int ranks,
                        std::int64_t begin_ns, std::int64_t end_ns) {
  if (instruments.recorder == nullptr) { return; }
  for (const CommOp& op : batch.ops()) {
    instruments.recorder->add({.kind = trace::Kind::collective,
                               .what = std::string{name_of(op)},
                               .unit = batch.label(),
                               .bytes = sent_bytes(op, rank, ranks),
                               .begin_ns = begin_ns,
                               .end_ns = end_ns,
                               .stream = instruments.stream});
  }
}

}  // namespace tessera::comm
