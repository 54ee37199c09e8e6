#include "bench/cuda/documents.hpp"

#include <random>

namespace tessera::bench {

double Documents::share_of_scores() const {
  std::int64_t needed = 0;
  std::int64_t all = 0;
  for (std::size_t row = 0; row < first_key.size(); ++row) {
    const std::int64_t t = static_cast<std::int64_t>(row) % seq;
    needed += t - first_key[row] + 1;
    all += t + 1;
  }
  return static_cast<double>(needed) / static_cast<double>(all);
}

Documents packed_documents(std::int64_t samples, std::int64_t seq, std::int64_t mean) {
  Documents documents{seq, {}};
  std::minstd_rand random{1};
  std::int64_t start = 0;
  std::int64_t end = 0;
  for (std::int64_t row = 0; row < samples * seq; ++row) {
    const std::int64_t t = row % seq;
    if (t == 0 || t == end) {
      start = t;
      end = t + mean / 2 + static_cast<std::int64_t>(random()) % mean;
    }
    documents.first_key.push_back(static_cast<std::int32_t>(start));
  }
  return documents;
}

}  // namespace tessera::bench
