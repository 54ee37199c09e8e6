#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "tessera/data/documents.hpp"
#include "tessera/data/sampler.hpp"
#include "tessera/data/token_source.hpp"

namespace tessera {

/// One micro-batch of one rank, [batch, seq] row-major: targets are the inputs shifted by one
/// token.
struct TokenBatch {
  std::vector<std::int32_t> inputs;  ///< the tokens
  /// The token that follows each input, or kIgnoredTarget where a loss does not count it.
  std::vector<std::int32_t> targets;
  /// With packed documents: for each input the place in its sequence at which its document begins.
  std::vector<std::int32_t> first_keys = {};
};

/// Reads one rank's micro-batches ahead, epoch after epoch, on a thread of its own. Window w is
/// tokens w*seq ... w*seq + seq; a source has floor((size - 1) / seq) windows.
///
/// Memory:  at most three micro-batches are ready, and one more is being read.
/// Errors:  `next` throws an error of reading after it has returned the micro-batches that were
///          read before, and again in every later call.
/// Threads: one thread calls `next`.
class TokenLoader {
 public:
  /// Starts to read at step `first_step` (counted over epochs, 0 or more). `options.windows` is
  /// ignored: the source determines it. Throws ConfigError with the number of tokens needed if the
  /// data does not suffice for one step, and ContractError if `source` is null. `documents` are
  /// those of the source, as check_documents accepts them: windows are cut as without them, and a
  /// document that is cut begins anew in the next window.
  TokenLoader(std::shared_ptr<const TokenSource> source, std::int64_t seq, SamplerOptions options,
              std::int64_t first_step = 0, Documents documents = {});
  /// Stops reading and waits for the thread.
  ~TokenLoader();
  TokenLoader(const TokenLoader&) = delete;
  TokenLoader& operator=(const TokenLoader&) = delete;

  /// Waits for the next micro-batch and returns it. A step has SamplerOptions::accumulate
  /// micro-batches.
  [[nodiscard]] TokenBatch next();

 private:
  void read_ahead() noexcept;
  void read_steps();
  [[nodiscard]] TokenBatch read_batch(const std::vector<std::int64_t>& windows) const;
  [[nodiscard]] bool deliver(TokenBatch batch);

  std::shared_ptr<const TokenSource> source_;
  std::int64_t seq_;
  SamplerOptions options_;
  Documents documents_;
  DistributedSampler sampler_;
  std::int64_t step_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenBatch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::thread reader_;
};

/// Returns the number of windows of `seq` tokens in `source`: floor((size - 1) / seq), since the
/// last target needs one token more.
[[nodiscard]] std::int64_t window_count(const TokenSource& source, std::int64_t seq) noexcept;

}  // namespace tessera
