#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// The order of the windows of an epoch.
enum class Shuffle : std::uint8_t {
  off,  ///< the order of the data
  on,   ///< a random order that depends on the seed and the epoch
};
/// How the last global batch of an epoch is treated if too few windows are left for it.
enum class LastBatch : std::uint8_t {
  drop,  ///< The epoch ends before it.
  wrap,  ///< It is filled with windows from the epoch's beginning.
};

/// How a DistributedSampler distributes windows. All ranks give the same values, except `rank`.
struct SamplerOptions {
  std::int64_t windows = 0;          ///< windows in the data set
  std::int64_t batch = 1;            ///< windows per rank and micro-batch
  int ranks = 1;                     ///< ranks that read different data
  int rank = 0;                      ///< this rank's number among them, from 0
  int accumulate = 1;                ///< micro-batches per step
  Shuffle shuffle = Shuffle::on;     ///< the order of windows
  LastBatch last = LastBatch::drop;  ///< how an incomplete last batch is treated
  std::uint64_t seed = 1;            ///< the key of the random order
};

/// Returns the number of windows in one step of all ranks: ranks * batch * accumulate. Throws
/// ConfigError if a factor is not positive or the product does not fit in 63 bits.
[[nodiscard]] std::int64_t global_batch(const SamplerOptions& options);

/// Distributes the windows of a data set over ranks. With G = ranks * batch * accumulate, step k
/// (from 0) of an epoch takes entries k*G ... k*G+G-1 of the epoch's order: micro-batch a of rank r
/// takes the `batch` entries from k*G + (a * ranks + r) * batch. The order is 0, 1, 2 ... or, if
/// shuffled, a permutation that depends on (seed, epoch) only, the same on every rank.
///
/// Memory:  constant: the permutation is computed entry by entry, never stored.
class DistributedSampler {
 public:
  /// Makes a sampler at epoch 0. Throws ConfigError with the amount of data missing if an epoch has
  /// no step, and ContractError for a rank outside [0, ranks).
  explicit DistributedSampler(SamplerOptions options);

  /// Sets the epoch, and with it the order, as in PyTorch.
  void set_epoch(std::int64_t epoch) noexcept { epoch_ = epoch; }
  /// Returns the current epoch, 0 at first.
  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  /// Returns the number of steps in an epoch.
  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept { return steps_; }
  /// Returns this rank's windows in micro-batch `micro` of step `step` of the epoch, both counted
  /// from 0. Throws ContractError if there is no such step or micro-batch.
  [[nodiscard]] std::vector<std::int64_t> windows(std::int64_t step, int micro) const;

 private:
  SamplerOptions options_;
  std::int64_t steps_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace tessera
