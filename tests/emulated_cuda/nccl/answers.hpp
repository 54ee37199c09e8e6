#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "emulated_cuda/nccl/wire.hpp"

namespace emulated_nccl {

/// One rank's part in a group of calls.
struct Part {
  std::vector<Call> calls;
  std::vector<std::vector<std::byte>> data;  // data of each call
  std::vector<std::size_t> collectives;      // indices of the calls that all ranks make
  std::optional<SplitAsk> split = {};        // set instead of calls
  std::optional<WindowAsk> window = {};      // set instead of calls
  bool connects = false;                     // set instead of calls
};

/// The results of a group of calls that all ranks make. Ends the process if only some ranks pass
/// registered buffers.
class Answers {
 public:
  /// Indexed by rank. `job_ranks` are the numbers that messages use.
  Answers(const std::vector<Part>& parts, const std::vector<int>& job_ranks) noexcept
      : parts_{parts}, job_ranks_{job_ranks} {}

  /// Appends the results of `rank`. False if the ranks' calls differ.
  [[nodiscard]] bool append(std::size_t rank, std::vector<std::byte>& out) const;

 private:
  struct Share;

  [[nodiscard]] bool answer(std::size_t rank, std::size_t i, std::vector<std::byte>& out) const;
  void check_alike(const Call& a, std::size_t rank_a, const Call& b, std::size_t rank_b) const;
  [[nodiscard]] bool find_shares(std::size_t rank, std::size_t i, std::vector<Share>& shares) const;
  [[nodiscard]] bool receive(std::size_t rank, std::size_t i, std::vector<std::byte>& out) const;
  static void reduce(const std::vector<Share>& shares, std::size_t at, std::vector<std::byte>& out);

  const std::vector<Part>& parts_;
  const std::vector<int>& job_ranks_;
};

}  // namespace emulated_nccl
