#include "engine/model/agreement.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "world/world_access.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <sstream>
#include <vector>

namespace tessera::engine {
namespace {

std::string line_or_end(std::istringstream& lines) {
  std::string line;
  return std::getline(lines, line) ? "'" + line + "'" : "nothing";
}

std::string first_difference(const std::string& a, const std::string& b, const World& world,
                             int rank_b) {
  std::istringstream lines_a{a};
  std::istringstream lines_b{b};
  for (int entry = 1;; ++entry) {
    const std::string line_a = line_or_end(lines_a);
    const std::string line_b = line_or_end(lines_b);
    if (line_a != line_b) {
      return fmt::format("entry {} is {} on {} and {} on {}", entry, line_a,
                         WorldAccess::name_of(world, 0), line_b,
                         WorldAccess::name_of(world, rank_b));
    }
    if (line_a == "nothing") { return "the texts differ beyond their last line"; }
  }
}

}  // namespace

void require_agreement(World& world, std::string_view what, const std::string& text) {
  const auto hash = fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
  const std::vector<std::string> hashes = world.exchange(hash);
  bool same = true;
  for (const std::string& other : hashes) { same = same && other == hashes.front(); }
  if (same) { return; }

  const std::vector<std::string> texts = world.exchange(text);
  for (std::size_t rank = 1; rank < texts.size(); ++rank) {
    if (texts[rank] != texts.front()) {
      throw ContractError{
          fmt::format("{} differs between ranks: {}; make every rank run the same program", what,
                      first_difference(texts.front(), texts[rank], world, static_cast<int>(rank)))};
    }
  }
}

}  // namespace tessera::engine
