#include "comm/control/tcp/call_ledger.hpp"

#include <algorithm>

namespace tessera::comm {

bool CallLedger::add(int rank, std::uint64_t first, std::span<const std::uint64_t> hashes) {
  std::uint64_t& count = counts_[static_cast<std::size_t>(rank)];
  if (first != count) { return false; }
  for (const std::uint64_t hash : hashes) { compare(count++, hash); }
  forget();
  return true;
}

void CallLedger::compare(std::uint64_t sequence, std::uint64_t hash) {
  const auto at = static_cast<std::size_t>(sequence - base_);
  if (at == hashes_.size()) { return hashes_.push_back(hash); }
  if (hashes_[at] != hash && (!difference_ || sequence < *difference_)) { difference_ = sequence; }
}

void CallLedger::forget() {
  const std::uint64_t all = *std::min_element(counts_.begin(), counts_.end());
  for (; base_ < all; ++base_) { hashes_.pop_front(); }
}

std::vector<int> CallLedger::missing(std::uint64_t sequence) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < counts_.size(); ++rank) {
    if (counts_[rank] <= sequence) { ranks.push_back(static_cast<int>(rank)); }
  }
  return ranks;
}

}  // namespace tessera::comm
