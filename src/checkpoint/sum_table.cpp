#include "checkpoint/sum_table.hpp"

namespace tessera {

void SumTable::add(std::size_t tensor, std::uint64_t bytes_in_all, std::uint64_t chunk_bytes,
                   std::uint64_t first_byte, std::span<const std::byte> bytes) {
  sums_.try_emplace(tensor, bytes_in_all, chunk_bytes).first->second.add(first_byte, bytes);
}

void SumTable::add(const SumTable& more) {
  for (const auto& [tensor, sums] : more.sums_) {
    const auto [mine, is_new] = sums_.try_emplace(tensor, sums);
    for (std::size_t block = 0; !is_new && block < sums.sums().size(); ++block) {
      mine->second.add_sum(block, sums.sums()[block]);
    }
  }
}

std::string SumTable::text() const {
  std::string text;
  for (const auto& [tensor, sums] : sums_) {
    for (std::size_t block = 0; block < sums.sums().size(); ++block) {
      const BlockSum entry{.tensor = static_cast<std::uint32_t>(tensor),
                           .block = static_cast<std::uint32_t>(block),
                           .sum = sums.sums()[block]};
      if (entry.sum == 0) { continue; }
      text.append(reinterpret_cast<const char*>(&entry), sizeof entry);
    }
  }
  return text;
}

}  // namespace tessera
