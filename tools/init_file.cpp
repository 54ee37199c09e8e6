#include "init_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "tessera/base/error.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::tools {
namespace {

constexpr std::streamoff kBlock = std::streamoff{1} << 20;
constexpr std::streamoff kBlocks = 256;  // read of a larger file: seconds, of the slowest disk
constexpr std::size_t kMostNamed = 8;

}  // namespace

std::string fingerprint_of_file(const std::string& path) {
  if (path.empty()) { return {}; }
  std::ifstream file{path, std::ios::binary};
  const auto free = [](XXH3_state_t* state) { XXH3_freeState(state); };
  const std::unique_ptr<XXH3_state_t, decltype(free)> state{XXH3_createState(), free};
  XXH3_128bits_reset(state.get());
  file.seekg(0, std::ios::end);
  const std::streamoff bytes = file.tellg();
  XXH3_128bits_update(state.get(), &bytes, sizeof bytes);
  std::vector<char> block(static_cast<std::size_t>(kBlock));
  const std::streamoff last = (bytes - 1) / kBlock;
  for (std::streamoff i = 0; i < kBlocks && file && bytes > 0; ++i) {
    const std::streamoff first = kBlock * (last < kBlocks ? i : i * last / (kBlocks - 1));
    if (first >= bytes) { break; }
    const std::streamsize wanted = std::min(kBlock, bytes - first);
    file.seekg(first).read(block.data(), wanted);
    XXH3_128bits_update(state.get(), block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file) { throw FormatError(fmt::format("--init: {} cannot be read", path)); }
  const XXH128_hash_t hash = XXH3_128bits_digest(state.get());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

void check_same_init(const Settings& settings, const std::vector<std::string>& fingerprints) {
  std::vector<std::size_t> others;
  for (std::size_t rank = 1; rank < fingerprints.size(); ++rank) {
    if (fingerprints[rank] != fingerprints.front()) { others.push_back(rank); }
  }
  if (others.empty()) { return; }
  const std::size_t more = others.size() - std::min(others.size(), kMostNamed);
  others.resize(others.size() - more);
  throw ConfigError(
      fmt::format("--init: {} {}{} would start from other weights than rank 0 ({}); give every "
                  "machine the same file",
                  others.size() == 1 ? "rank" : "ranks", fmt::join(others, ", "),
                  more > 0 ? fmt::format(" and {} more", more) : "",
                  settings.init.empty() ? "none" : settings.init));
}

}  // namespace tessera::tools
