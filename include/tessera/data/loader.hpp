#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/data/sampler.hpp"
#include "tessera/data/token_source.hpp"

namespace tessera {

/// One micro-batch of one rank, [batch, seq] row-major: targets are inputs shifted by one.
struct TokenBatch {
  std::vector<std::int32_t> inputs;
  std::vector<std::int32_t> targets;
};

/// Reads one rank's micro-batches ahead, epoch after epoch, on a thread of its own. Window w is
/// tokens w*seq ... w*seq + seq; a source has floor((size - 1) / seq) windows.
///
/// Errors:  what reading threw is thrown by `next`.
/// Threads: one thread calls `next`.
class TokenLoader {
 public:
  /// `options.windows` is filled in. Starts at step `first_step` (counted over epochs).
  TokenLoader(std::shared_ptr<const TokenSource> source, std::int64_t seq, SamplerOptions options,
              std::int64_t first_step = 0);
  ~TokenLoader();
  TokenLoader(const TokenLoader&) = delete;
  TokenLoader& operator=(const TokenLoader&) = delete;

  /// The next micro-batch: `accumulate` of them make a step.
  [[nodiscard]] TokenBatch next();

 private:
  void read_ahead();

  std::shared_ptr<const TokenSource> source_;
  std::int64_t seq_;
  SamplerOptions options_;
  DistributedSampler sampler_;
  std::int64_t step_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenBatch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread reader_;
};

/// Windows of `seq` tokens (and one more, the last target) in `source`.
[[nodiscard]] std::int64_t window_count(const TokenSource& source, std::int64_t seq) noexcept;

}  // namespace tessera
