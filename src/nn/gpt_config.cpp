#include "tessera/nn/gpt_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>

#include "tessera/base/error.hpp"

namespace tessera::nn {
namespace {

struct Preset {
  std::string_view name;
  GPTConfig config;
};

// The GPT-2 family as published (Radford et al. 2019).
constexpr std::array kPresets{
    Preset{"gpt-nano", {4, 128, 4, 256, 128}},
    Preset{"gpt2", {12, 768, 12, 50257, 1024}},
    Preset{"gpt2-medium", {24, 1024, 16, 50257, 1024}},
    Preset{"gpt2-large", {36, 1280, 20, 50257, 1024}},
    Preset{"gpt2-xl", {48, 1600, 25, 50257, 1024}},
};

struct Limit {
  std::string_view what;
  std::int64_t value;
  std::int64_t most;
};

// Together they keep parameter_elems() below 2^63.
void check(const Limit& limit) {
  if (limit.value >= 1 && limit.value <= limit.most) { return; }
  throw ConfigError(
      fmt::format("{} is {}: give a number from 1 to {}", limit.what, limit.value, limit.most));
}

}  // namespace

GPTConfig GPTConfig::preset(std::string_view name) {
  const auto* found = std::ranges::find(kPresets, name, &Preset::name);
  if (found == kPresets.end()) {
    throw ConfigError(fmt::format("the model \"{}\" does not exist: choose one of {}", name,
                                  fmt::join(preset_names(), ", ")));
  }
  return found->config;
}

const std::vector<std::string_view>& GPTConfig::preset_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    for (const Preset& preset : kPresets) { all.push_back(preset.name); }
    return all;
  }();
  return names;
}

void GPTConfig::validate() const {
  check({"layers", layers, std::int64_t{1} << 16});
  check({"hidden", hidden, std::int64_t{1} << 20});
  check({"heads", heads, std::int64_t{1} << 20});
  check({"vocab", vocab, std::numeric_limits<std::int32_t>::max()});
  check({"seq", seq, std::int64_t{1} << 30});
  if (hidden % heads != 0) {
    throw ConfigError(
        fmt::format("{} heads do not divide a hidden size of {}: each head takes hidden / heads "
                    "values; make hidden a multiple of {}, for example {}",
                    heads, hidden, heads, (hidden / heads + 1) * heads));
  }
}

std::int64_t GPTConfig::parameter_elems() const noexcept {
  return (vocab + seq) * hidden + layers * (12 * hidden + 13) * hidden + 2 * hidden;
}

}  // namespace tessera::nn
