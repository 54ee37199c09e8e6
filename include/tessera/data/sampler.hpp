#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

enum class Shuffle : std::uint8_t { off, on };
enum class LastBatch : std::uint8_t {
  drop,  ///< an epoch ends before a global batch that is not full
  wrap,  ///< ... or fills it with windows from the epoch's beginning
};

struct SamplerOptions {
  std::int64_t windows = 0;  ///< in the data set
  std::int64_t batch = 1;    ///< per rank and micro-batch
  int ranks = 1;
  int rank = 0;
  int accumulate = 1;
  Shuffle shuffle = Shuffle::on;
  LastBatch last = LastBatch::drop;
  std::uint64_t seed = 1;
};

/// Windows that one step of all ranks takes: ranks * batch * accumulate. ConfigError if one of them
/// is not positive or the product cannot be counted.
[[nodiscard]] std::int64_t global_batch(const SamplerOptions& options);

/// Deals the windows of a data set to ranks. With G = ranks * batch * accumulate, step k (from 0)
/// of an epoch takes entries k*G ... k*G+G-1 of the epoch's order: micro-batch a of rank r takes
/// the `batch` entries from k*G + (a * ranks + r) * batch. The order is 0, 1, 2 ... or, shuffled, a
/// permutation that depends on (seed, epoch) alone, the same on every rank.
///
/// Memory:  constant: the permutation is computed entry by entry, never stored.
class DistributedSampler {
 public:
  /// ConfigError if an epoch has no step (it says how much data is missing).
  explicit DistributedSampler(SamplerOptions options);

  /// As PyTorch's: another epoch, another order.
  void set_epoch(std::int64_t epoch) noexcept { epoch_ = epoch; }
  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  [[nodiscard]] std::int64_t steps_per_epoch() const noexcept { return steps_; }
  /// The windows of this rank in micro-batch `micro` of step `step` of the epoch.
  [[nodiscard]] std::vector<std::int64_t> windows(std::int64_t step, int micro) const;

 private:
  SamplerOptions options_;
  std::int64_t steps_ = 0;
  std::int64_t epoch_ = 0;
};

}  // namespace tessera
