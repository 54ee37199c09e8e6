#pragma once

#include <cstdint>
#include <optional>

#include "tessera/comm/world.hpp"

namespace tessera {

/// What is attached to a communicator to watch or disturb it. Used by every backend, on the thread
/// where a batch runs.
struct Instruments {
  trace::Recorder* recorder = nullptr;  ///< outlives the communicator's streams
  std::optional<DelayInjection> delays = {};
  const char* stream = "";  ///< what records call the communicator's: "gather", "reduce"
};

enum class Moment : std::uint8_t { before, after };

/// Sleeps as the delays say: for a length that depends on seed, channel, rank, sequence and moment.
void inject_delay(const Instruments& instruments, int channel, int rank, std::uint64_t sequence,
                  Moment moment);

/// Adds one record for each entry of `batch`, which moved its data from `begin_ns` until now.
void record_collectives(const Instruments& instruments, const Batch& batch, int rank, int ranks,
                        std::int64_t begin_ns);

}  // namespace tessera
