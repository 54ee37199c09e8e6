#pragma once

#include <cstddef>
#include <filesystem>

#include "tools/measure/comparison.hpp"
#include "tools/measure/step.hpp"

namespace tessera::bench {

/// A synchronous save and a load of a GPT's training state, in turn with a plain program that
/// writes and reads as many bytes in one file. Every write is flushed to the disk, and no read
/// finds its bytes in the page cache.
struct CheckpointTimes {
  std::size_t bytes = 0;  ///< of a checkpoint
  Comparison save;
  Comparison load;
};

/// Steps without and with a concurrent asynchronous save, in turn.
struct AsynchronousCost {
  std::size_t bytes = 0;  ///< copied by a save
  Series plain;           ///< steps without a save
  Series saving;          ///< starting a save, and the step beside it
  Series copies;          ///< copying as many bytes with one thread

  /// What the save adds to a step beyond the copies, as a fraction of the step: the median over the
  /// rounds.
  [[nodiscard]] double waiting_part() const;
};

/// Measures one rank with AdamW in fp32. Its files are in a new folder below `folder`, which is
/// removed at the end. Error if the disk fails.
[[nodiscard]] CheckpointTimes measure_checkpoints(const StepOptions& options,
                                                  const std::filesystem::path& folder);
[[nodiscard]] AsynchronousCost measure_asynchronous_saves(const StepOptions& options,
                                                          const std::filesystem::path& folder);

}  // namespace tessera::bench
