#include "engine/model/agreement.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "world/world_access.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <vector>

namespace tessera::engine {
namespace {

std::string hash_of(const Lines& lines, std::size_t first, std::size_t end) {
  std::uint64_t hash = 0;
  for (std::size_t at = first; at < std::min(end, lines.count); ++at) {
    const std::string line = lines.line(at);
    hash = XXH3_64bits_withSeed(line.data(), line.size(), hash);
  }
  return fmt::format("{:016x} {}", hash, std::min(end, lines.count));
}

bool all_equal(const std::vector<std::string>& texts) {
  return std::ranges::all_of(texts, [&](const std::string& text) { return text == texts.front(); });
}

/// *Collective.* Halves the lines among which the first difference is. `count`: of the longest
/// list; there is a difference.
std::size_t first_difference(World& world, const Lines& lines, std::size_t count) {
  std::size_t same = 0;        // the lines before are equal on all ranks
  std::size_t differ = count;  // among the lines before one differs
  while (differ - same > 1) {
    const std::size_t middle = same + (differ - same) / 2;
    const bool equal = all_equal(world.exchange(hash_of(lines, same, middle)));
    (equal ? same : differ) = middle;
  }
  return same;
}

}  // namespace

void require_agreement(World& world, std::string_view what, const Lines& lines) {
  if (all_equal(world.exchange(hash_of(lines, 0, lines.count)))) { return; }

  std::size_t most = 0;
  for (const std::string& count : world.exchange(fmt::format("{}", lines.count))) {
    most = std::max<std::size_t>(most, std::stoull(count));
  }
  const std::size_t at = first_difference(world, lines, most);
  const std::vector<std::string> shown =
      world.exchange(at < lines.count ? fmt::format("'{}'", lines.line(at)) : "nothing");
  const auto other =
      std::ranges::find_if(shown, [&](const std::string& line) { return line != shown.front(); });
  throw ContractError{fmt::format(
      "{} differs between ranks: entry {} is {} on {} and {} on {}; make every rank run the same "
      "program",
      what, at + 1, shown.front(), world::WorldAccess::name_of(world, 0), *other,
      world::WorldAccess::name_of(world, static_cast<int>(other - shown.begin())))};
}

void require_agreement(World& world, std::string_view what, const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream{text};
  for (std::string line; std::getline(stream, line);) { lines.push_back(line); }
  require_agreement(world, what, Lines{lines.size(), [&](std::size_t at) { return lines[at]; }});
}

}  // namespace tessera::engine
