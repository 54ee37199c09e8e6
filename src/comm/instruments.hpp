#pragma once

#include <cstdint>
#include <optional>

#include "tessera/comm/batch.hpp"
#include "tessera/comm/delay_injection.hpp"
#include "tessera/trace/recorder.hpp"

namespace tessera::comm {

/// The numbers of the instruments of a rank's channels.
inline constexpr std::uint64_t kGatherNumber = 0;
inline constexpr std::uint64_t kReduceNumber = 1;
inline constexpr std::uint64_t kOffloadNumber = 2;
// Above the numbers of all split channels.
inline constexpr std::uint64_t kStatesNumber = std::uint64_t{1} << 40U;
inline constexpr std::uint64_t kHostNumber = kStatesNumber + 1;
inline constexpr std::uint64_t kSnapshotsNumber = kStatesNumber + 2;
inline constexpr std::uint64_t kHostCopiesNumber = kStatesNumber + 3;
inline constexpr std::uint64_t kStatesInNumber = kStatesNumber + 4;
inline constexpr std::uint64_t kUpdateNumber = kStatesNumber + 5;

/// What is attached to a communicator to observe or delay it. Every backend uses it, on the thread
/// where a batch runs.
struct Instruments {
  trace::Recorder* recorder = nullptr;  ///< outlives the communicator's streams
  std::optional<DelayInjection> delays = {};
  const char* stream = "";   ///< the communicator's name in records: "gather", "reduce"
  std::uint64_t number = 0;  ///< distinguishes its delays from those of others

  /// The instruments of the `nth` communicator split from this one, counting from 0.
  [[nodiscard]] Instruments of_split(std::uint64_t nth) const;
};

enum class DelayPoint : std::uint8_t { before, after };

/// Sleeps for a time that depends on seed, number, rank (of the job), sequence and moment, as the
/// delay options say.
void inject_delay(const Instruments& instruments, int rank, std::uint64_t sequence,
                  DelayPoint point);

/// Adds one record for each entry of `batch`, which moved data from `begin_ns` to `end_ns` between
/// `ranks` ranks as rank `rank` of them.
void record_collectives(const Instruments& instruments, const Batch& batch, int rank, int ranks,
                        std::int64_t begin_ns, std::int64_t end_ns);

}  // namespace tessera::comm
