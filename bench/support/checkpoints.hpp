#pragma once

#include <cstddef>
#include <filesystem>

#include "bench/support/comparison.hpp"
#include "bench/support/step.hpp"

namespace tessera::bench {

/// A synchronous save and a load of a GPT's training state beside a plain program that writes and
/// reads as many bytes in one file, in turn. Every write is flushed to the disk, and no read finds
/// its bytes in the page cache.
struct CheckpointTimes {
  std::size_t bytes = 0;  ///< of a checkpoint
  Comparison save;
  Comparison load;
};

/// Steps without and with an asynchronous save beside them, in turn.
struct AsynchronousCost {
  std::size_t bytes = 0;  ///< that are copied
  Series plain;           ///< steps without a save
  Series saving;          ///< beginning a save and the step beside it
  Series copies;          ///< copying as many bytes by one thread

  /// What the save adds to a step beyond the copies, as a part of the step: the median over the
  /// rounds.
  [[nodiscard]] double waiting_part() const;
};

/// One rank, AdamW in fp32, files in a folder of its own below `folder`, which is removed at the
/// end. Error if the disk refuses.
[[nodiscard]] CheckpointTimes measure_checkpoints(const StepOptions& options,
                                                  const std::filesystem::path& folder);
[[nodiscard]] AsynchronousCost measure_asynchronous_saves(const StepOptions& options,
                                                          const std::filesystem::path& folder);

}  // namespace tessera::bench
