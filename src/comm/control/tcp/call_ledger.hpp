#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace tessera::comm {

/// The hashes of what the ranks have issued on one channel. Finds the first call in which ranks
/// differ. Holds the calls that some ranks have issued and others not yet.
class CallLedger {
 public:
  explicit CallLedger(int ranks) : counts_(static_cast<std::size_t>(ranks), 0) {}

  /// Notes that `rank` has issued `hashes`, the first as its call number `first`. Returns false if
  /// there is a gap after its earlier calls.
  [[nodiscard]] bool add(int rank, std::uint64_t first, std::span<const std::uint64_t> hashes);
  /// Returns the first call for which two ranks gave different hashes.
  [[nodiscard]] std::optional<std::uint64_t> difference() const noexcept { return difference_; }
  /// Returns the number of calls that `rank` has issued.
  [[nodiscard]] std::uint64_t issued(int rank) const noexcept {
    return counts_[static_cast<std::size_t>(rank)];
  }
  /// Returns the ranks that have not issued call number `sequence`.
  [[nodiscard]] std::vector<int> missing(std::uint64_t sequence) const;

 private:
  void compare(std::uint64_t sequence, std::uint64_t hash);
  void forget();

  std::vector<std::uint64_t> counts_;  // by rank
  std::deque<std::uint64_t> hashes_;   // from call base_ on, as the first rank gave them
  std::uint64_t base_ = 0;             // all ranks have issued the calls before it
  std::optional<std::uint64_t> difference_;
};

}  // namespace tessera::comm
