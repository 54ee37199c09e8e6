#include "tessera/data/loader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "base/process_limits.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::size_t kReadAhead = 3;

// The tokens that `windows` windows cover, or the highest number if that overflows.
std::int64_t tokens_of(std::int64_t windows, std::int64_t seq) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return windows > (kMost - 1) / seq ? kMost : windows * seq + 1;
}

SamplerOptions with_windows(SamplerOptions options, const TokenSource* source, std::int64_t seq) {
  expects(source != nullptr, "TokenLoader: source is null; pass a source");
  if (seq < 1) {
    throw ConfigError(fmt::format("data: the sequence length must be at least 1, but is {}", seq));
  }
  options.windows = window_count(*source, seq);
  const std::int64_t needed = options.last == LastBatch::wrap ? 1 : global_batch(options);
  if (options.windows < needed) {
    throw ConfigError(
        fmt::format("{}: too little data for one step: it has {} tokens, but {} ranks x batch {} x "
                    "accumulate {} x sequence {} need {}",
                    source->name(), source->size(), options.ranks, options.batch,
                    options.accumulate, seq, tokens_of(needed, seq)));
  }
  return options;
}

}  // namespace

std::int64_t window_count(const TokenSource& source, std::int64_t seq) noexcept {
  const std::int64_t size = source.size();
  return size < 1 || seq < 1 ? 0 : (size - 1) / seq;
}

TokenLoader::TokenLoader(std::shared_ptr<const TokenSource> source, std::int64_t seq,
                         SamplerOptions options, std::int64_t first_step, Documents documents)
    : source_{std::move(source)},
      seq_{seq},
      options_{with_windows(options, source_.get(), seq)},
      documents_{std::move(documents)},
      sampler_{options_},
      step_{first_step} {
  expects(first_step >= 0, "TokenLoader: first_step must not be negative");
  reader_ = start_thread("the thread that reads ahead", [this] { read_ahead(); });
}

TokenLoader::~TokenLoader() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  changed_.notify_all();
  reader_.join();
}

TokenBatch TokenLoader::next() {
  std::unique_lock lock{mutex_};
  changed_.wait(lock, [&] { return !ready_.empty() || failure_ != nullptr; });
  if (ready_.empty()) { std::rethrow_exception(failure_); }
  TokenBatch batch = std::move(ready_.front());
  ready_.pop_front();
  lock.unlock();
  changed_.notify_all();
  return batch;
}

void TokenLoader::read_ahead() noexcept {
  try {
    read_steps();
  } catch (...) {
    {
      const std::lock_guard lock{mutex_};
      failure_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

void TokenLoader::read_steps() {
  for (;; ++step_) {
    sampler_.set_epoch(step_ / sampler_.steps_per_epoch());
    const std::int64_t step = step_ % sampler_.steps_per_epoch();
    for (int micro = 0; micro < options_.accumulate; ++micro) {
      if (!deliver(read_batch(sampler_.windows(step, micro)))) { return; }
    }
  }
}

TokenBatch TokenLoader::read_batch(const std::vector<std::int64_t>& windows) const {
  const auto seq = static_cast<std::size_t>(seq_);
  TokenBatch batch{std::vector<std::int32_t>(windows.size() * seq),
                   std::vector<std::int32_t>(windows.size() * seq)};
  if (documents_.packed()) { batch.first_keys.resize(windows.size() * seq); }
  std::vector<std::int32_t> tokens(seq + 1);
  for (std::size_t row = 0; row < windows.size(); ++row) {
    source_->read(windows[row] * seq_, tokens);
    const auto at = static_cast<std::ptrdiff_t>(row * seq);
    std::copy(tokens.begin(), tokens.end() - 1, batch.inputs.begin() + at);
    std::copy(tokens.begin() + 1, tokens.end(), batch.targets.begin() + at);
    const auto of_row = [&](std::vector<std::int32_t>& of) {
      return of.empty() ? std::span<std::int32_t>{} : std::span{of}.subspan(row * seq, seq);
    };
    documents_.divide(windows[row] * seq_, tokens, of_row(batch.targets), of_row(batch.first_keys));
  }
  return batch;
}

// Returns false when the loader is being destroyed.
bool TokenLoader::deliver(TokenBatch batch) {
  {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [&] { return stop_ || ready_.size() < kReadAhead; });
    if (stop_) { return false; }
    ready_.push_back(std::move(batch));
  }
  changed_.notify_all();
  return true;
}

}  // namespace tessera
