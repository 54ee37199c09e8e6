#include "tools/options/job_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "tessera/base/error.hpp"
#include "tools/common/input_file.hpp"
#include "tools/train/documents.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::tools {
namespace {

/// An option with its value.
using Pair = std::pair<std::string, std::string>;

constexpr std::size_t kMostNamed = 8;
constexpr std::int64_t kTokensOfBlock = std::int64_t{1} << 18;
constexpr std::int64_t kBlocksRead = 256;  // blocks of longer data: seconds even on a slow disk

/// Options that only rank 0 acts on, or that are compared in another way.
constexpr std::array<std::string_view, 7> kOwn = {"--log",   "--json",   "--init",  "--comm",
                                                  "--ranks", "--budget", "--config"};
/// Options of which only the presence is compared, not the path.
constexpr std::array<std::string_view, 4> kPlaces = {"--checkpoint", "--resume-from", "--report",
                                                     "--trace"};

template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

class Hash {
 public:
  Hash() { XXH3_64bits_reset(state_.get()); }
  void add(const void* data, std::size_t bytes) { XXH3_64bits_update(state_.get(), data, bytes); }
  [[nodiscard]] std::string text() const {
    return fmt::format("{:016x}", XXH3_64bits_digest(state_.get()));
  }

 private:
  struct Free {
    void operator()(XXH3_state_t* state) const noexcept { XXH3_freeState(state); }
  };
  std::unique_ptr<XXH3_state_t, Free> state_{XXH3_createState()};
};

std::string content_of_prompt(const std::string& path) {
  const std::string text = read_input("--prompt-file", path);
  Hash hash;
  hash.add(text.data(), text.size());
  return fmt::format("{} bytes of hash {}", text.size(), hash.text());
}

/// The canonical form: 3e-4 becomes 0.0003, and fsdp becomes zero3.
std::string plain(const std::string& text) {
  double number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error == std::errc{} && stop == end) { return fmt::format("{}", number); }
  std::string plain = text;
  for (auto at = plain.find("fsdp"); at != std::string::npos; at = plain.find("fsdp")) {
    plain.replace(at, 4, "zero3");
  }
  return plain;
}

std::string value_of(const Job& job, const Pair& option) {
  const auto& [name, text] = option;
  if (text.empty()) { return {}; }
  if (job.resume && (name == "--resume" || name == "--resume-from")) {
    return fmt::format("step {}", job.resume->step);
  }
  if (is_one_of(kPlaces, name)) { return "given"; }
  if (name == "--data" || name == "--tokens") { return content_of(job.source.get()); }
  if (name == "--eval-data") { return content_of(job.held_out.get()); }
  if (name == "--pack") { return pack_of(job.documents); }
  if (name == "--loss-mask") { return mask_of(job.documents); }
  if (name == "--eval-pack") { return pack_of(job.held_documents); }
  if (name == "--eval-loss-mask") { return mask_of(job.held_documents); }
  if (name == "--prompt-file") { return content_of_prompt(text); }
  return name == "--prompt" ? text : plain(text);
}

std::string or_none(const std::string& value) {
  return value.empty() ? "none" : value;
}

}  // namespace

std::string content_of(const TokenSource* source) {
  if (source == nullptr) { return {}; }
  const std::int64_t last = (source->size() - 1) / kTokensOfBlock;
  Hash hash;
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < std::min(kBlocksRead, last + 1); ++i) {
    const std::int64_t first =
        kTokensOfBlock * (last < kBlocksRead ? i : i * last / (kBlocksRead - 1));
    tokens.resize(static_cast<std::size_t>(std::min(kTokensOfBlock, source->size() - first)));
    source->read(first, tokens);
    hash.add(tokens.data(), tokens.size() * sizeof(std::int32_t));
  }
  return fmt::format("{} tokens of hash {}", source->size(), hash.text());
}

std::string content_of(const std::vector<std::int64_t>& starts) {
  Hash hash;
  hash.add(starts.data(), starts.size() * sizeof(std::int64_t));
  return fmt::format("{} documents of hash {}", starts.size(), hash.text());
}

std::string job_options(const Job& job) {
  nlohmann::json all = nlohmann::json::array();
  for (const Pair& option : job.settings.effective) {
    if (is_one_of(kOwn, option.first)) { continue; }
    all.push_back({option.first, value_of(job, option)});
  }
  return all.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

void check_same_options(const std::vector<std::string>& options) {
  std::vector<std::vector<Pair>> all;
  for (const std::string& text : options) {
    all.push_back(nlohmann::json::parse(text).get<std::vector<Pair>>());
  }
  // The command comes first: it determines which options exist.
  for (std::size_t i = 0; i < all.front().size(); ++i) {
    const auto value = [&](std::size_t rank) {
      return i < all[rank].size() ? all[rank][i].second : std::string{};
    };
    std::vector<std::size_t> others;
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      const bool first = others.empty();
      if (value(rank) != value(0) && (first || value(rank) == value(others.front()))) {
        others.push_back(rank);
      }
    }
    if (others.empty()) { continue; }
    const std::string theirs = or_none(value(others.front()));
    throw ConfigError(
        fmt::format("{}: rank 0 has {}, and {} {} {}; give every process of a job the same",
                    all.front()[i].first, or_none(value(0)), some_ranks(others),
                    others.size() == 1 ? "has" : "have", theirs));
  }
}

std::string some_ranks(std::vector<std::size_t> ranks) {
  const std::size_t more = ranks.size() - std::min(ranks.size(), kMostNamed);
  ranks.resize(ranks.size() - more);
  return fmt::format("{} {}{}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace tessera::tools
