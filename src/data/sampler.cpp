#include "tessera/data/sampler.hpp"

#include <fmt/format.h>

#include <limits>

#include "base/enumerator.hpp"
#include "data/permutation.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

void check_positive(const char* name, std::int64_t value) {
  if (value >= 1) { return; }
  throw ConfigError(fmt::format("data: {} must be at least 1, but is {}", name, value));
}

std::int64_t count_steps(const SamplerOptions& options) {
  const std::int64_t global = global_batch(options);
  require_enumerator("SamplerOptions: shuffle", options.shuffle, Shuffle::on);
  require_enumerator("SamplerOptions: last", options.last, LastBatch::wrap);
  expects(options.rank >= 0 && options.rank < options.ranks, "DistributedSampler: no such rank");
  expects(options.windows >= 0, "DistributedSampler: windows must not be negative");
  if (options.last == LastBatch::wrap && options.windows > 0) {
    return 1 + (options.windows - 1) / global;
  }
  if (options.windows < global || options.windows == 0) {
    throw ConfigError(
        fmt::format("data: too little for one step: there are {} windows, but {} ranks x batch {} "
                    "x accumulate {} need {}",
                    options.windows, options.ranks, options.batch, options.accumulate,
                    options.last == LastBatch::wrap ? 1 : global));
  }
  return options.windows / global;
}

}  // namespace

std::int64_t global_batch(const SamplerOptions& options) {
  check_positive("ranks", options.ranks);
  check_positive("batch", options.batch);
  check_positive("accumulate", options.accumulate);
  const std::int64_t micro_batches = std::int64_t{options.ranks} * options.accumulate;
  if (options.batch > std::numeric_limits<std::int64_t>::max() / micro_batches) {
    throw ConfigError(
        fmt::format("data: a batch of {} is too large; choose a smaller one", options.batch));
  }
  return micro_batches * options.batch;
}

DistributedSampler::DistributedSampler(SamplerOptions options)
    : options_{options}, steps_{count_steps(options)} {}

std::vector<std::int64_t> DistributedSampler::windows(std::int64_t step, int micro) const {
  expects(step >= 0 && step < steps_, "DistributedSampler: no such step in an epoch");
  expects(micro >= 0 && micro < options_.accumulate, "DistributedSampler: no such micro-batch");
  const std::int64_t micro_batch =
      (step * options_.accumulate + micro) * options_.ranks + options_.rank;
  const std::int64_t first = micro_batch * options_.batch;
  const data::Permutation shuffled{options_.windows, options_.seed,
                                   static_cast<std::uint64_t>(epoch_)};

  std::vector<std::int64_t> windows;
  windows.reserve(static_cast<std::size_t>(options_.batch));
  for (std::int64_t i = 0; i < options_.batch; ++i) {
    const std::int64_t entry = (first + i) % options_.windows;  // only LastBatch::wrap wraps
    windows.push_back(options_.shuffle == Shuffle::on ? shuffled(entry) : entry);
  }
  return windows;
}

}  // namespace tessera
