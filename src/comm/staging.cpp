#include "comm/staging.hpp"

#include <algorithm>

namespace tessera::comm {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kLargestBlock = std::size_t{1} << 20U;
constexpr std::size_t kLargestScratch = std::size_t{8} << 20U;

std::size_t peers_of(int ranks) noexcept {
  return static_cast<std::size_t>(ranks - 1);
}

}  // namespace

std::size_t mpi_reduce_block_bytes(std::size_t scratch_bytes, int ranks) noexcept {
  if (ranks < 2) { return kLargestBlock; }
  const std::size_t fair = scratch_bytes / (2 * peers_of(ranks)) / kPage * kPage;
  return std::clamp(fair, kPage, kLargestBlock);
}

std::size_t mpi_scratch_bytes(int ranks) noexcept {
  return 2 * peers_of(ranks) * mpi_reduce_block_bytes(kLargestScratch, ranks);
}

std::size_t staging_bytes(CommKind kind, int ranks) noexcept {
  return kind == CommKind::mpi ? mpi_scratch_bytes(ranks) : 0;
}

}  // namespace tessera::comm
