#include "tessera/nn/sample.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <system_error>

#include "nn/decoder_state.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/philox.hpp"
#include "tessera/world/mesh_shape.hpp"

namespace tessera::nn {
namespace {

/// Uniform in [0, 1), with 53 bits.
double uniform(std::uint64_t seed, std::int64_t sample, std::int64_t position) {
  constexpr std::uint32_t tag = 0x73616D70;  // separate from other uses of the seed
  const auto p = static_cast<std::uint64_t>(position);
  const auto words =
      philox4x32({static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32U),
                  static_cast<std::uint32_t>(sample), tag},
                 {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U)});
  const std::uint64_t bits = (std::uint64_t{words[0]} << 32U | words[1]) >> 11U;
  return static_cast<double>(bits) * 0x1p-53;
}

void require_finite(std::span<const float> logits) {
  expects(!logits.empty(), "Sampler::draw: there are no logits");
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) { continue; }
    throw Error(
        fmt::format("the model's logit of token {} is {}: its weights are unusable, load others", i,
                    logits[i]));
  }
}

/// The `count` most likely tokens, the most likely first.
std::vector<std::int32_t> most_likely(std::span<const float> logits, std::int64_t count) {
  std::vector<std::int32_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end = tokens.begin() + count;
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)];
    const float y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  });
  tokens.erase(end, tokens.end());
  return tokens;
}

/// Running sums of numbers proportional to each token's probability.
std::vector<double> running_weights(std::span<const float> logits,
                                    std::span<const std::int32_t> tokens, double temperature) {
  const auto logit = [&](std::int32_t token) {
    return static_cast<double>(logits[static_cast<std::size_t>(token)]);
  };
  std::vector<double> sums;
  double sum = 0.0;
  for (const std::int32_t token : tokens) {
    sum += std::exp((logit(token) - logit(tokens.front())) / temperature);
    sums.push_back(sum);
  }
  return sums;
}

std::string text_of(const std::vector<std::int32_t>& tokens) {
  return fmt::format("{}", fmt::join(tokens, " "));
}

std::vector<std::int32_t> tokens_of(const std::string& text) {
  std::vector<std::int32_t> tokens;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    std::int32_t token = 0;
    const auto [next, error] = std::from_chars(at, end, token);
    expects(error == std::errc{} && (next == end || *next == ' '),
            "generate: the tokens of another rank are not numbers");
    tokens.push_back(token);
    at = next == end ? end : next + 1;
  }
  return tokens;
}

void check(const Decoder& gpt, const Generation& generation) {
  generation.sampler.validate();
  if (generation.prompt.empty()) {
    throw ConfigError("the prompt is empty; give at least one token");
  }
  for (const std::int32_t token : generation.prompt) {
    if (token >= 0 && token < gpt.config().vocab) { continue; }
    throw ConfigError(fmt::format("the prompt's token {} is outside the vocabulary of {}", token,
                                  gpt.config().vocab));
  }
  constexpr std::int64_t most = 1 << 30;
  if (generation.tokens < 1 || generation.tokens > most) {
    throw ConfigError(
        fmt::format("{} tokens to draw: give a number from 1 to {}", generation.tokens, most));
  }
  if (generation.samples < 1 || generation.samples > most) {
    throw ConfigError(
        fmt::format("{} samples: give a number from 1 to {}", generation.samples, most));
  }
}

/// Returns the data rank that each rank belongs to.
std::vector<int> data_ranks(const std::vector<MeshDim>& mesh, int ranks) {
  std::vector<int> data(static_cast<std::size_t>(ranks));
  std::iota(data.begin(), data.end(), 0);
  if (mesh.empty()) { return data; }
  const MeshShape shape{mesh};
  for (int& rank : data) { rank = shape.data_index(rank); }
  return data;
}

/// The tokens that sample `sample` continues. Every rank computes one sample; a rank without one
/// follows with a single token.
std::vector<std::int32_t> continued(Decoder& gpt, const Generation& generation,
                                    std::int64_t sample) {
  const bool idle = sample >= generation.samples;
  const auto window = static_cast<std::size_t>(gpt.config().seq);
  std::vector<std::int32_t> all = generation.prompt;
  for (std::int64_t drawn = 0; drawn < generation.tokens; ++drawn) {
    const std::span seen = std::span{all}.last(std::min(all.size(), idle ? 1 : window));
    const std::vector<float> logits = gpt.next_logits(seen);
    if (idle) { continue; }
    all.push_back(generation.sampler.draw(logits, sample, std::ssize(all)));
  }
  if (idle) { return {}; }
  return {all.end() - generation.tokens, all.end()};
}

}  // namespace

void Sampler::validate() const {
  if (!(temperature >= 0.0F) || !std::isfinite(temperature)) {
    throw ConfigError(
        fmt::format("`temperature` is {}: give 0 (the most likely token) or more", temperature));
  }
  if (top_k < 0) {
    throw ConfigError(fmt::format("`top_k` is {}: give 0 (all tokens) or more", top_k));
  }
  if (!(top_p > 0.0F && top_p <= 1.0F)) {
    throw ConfigError(fmt::format("`top_p` is {}: give a probability above 0 and up to 1", top_p));
  }
}

std::int32_t Sampler::draw(std::span<const float> logits, std::int64_t sample,
                           std::int64_t position) const {
  require_finite(logits);
  const std::int64_t all = std::ssize(logits);
  const bool greedy = temperature == 0.0F;
  const std::int64_t count = greedy ? 1 : top_k == 0 ? all : std::min(top_k, all);
  const std::vector<std::int32_t> tokens = most_likely(logits, count);
  if (greedy) { return tokens.front(); }
  const std::vector<double> sums =
      running_weights(logits, tokens, static_cast<double>(temperature));
  // The first tokens that together reach top_p, and among them the token where the running sum
  // passes the draw.
  const auto last =
      std::lower_bound(sums.begin(), sums.end() - 1, static_cast<double>(top_p) * sums.back());
  const double drawn = uniform(seed, sample, position) * *last;
  const auto chosen = std::upper_bound(sums.begin(), last, drawn);
  return tokens[static_cast<std::size_t>(chosen - sums.begin())];
}

// Ranks that differ along pipe and tensor alone compute the same sample together.
std::vector<std::vector<std::int32_t>> generate(Decoder& gpt, World& world,
                                                const Generation& generation) {
  check(gpt, generation);
  expects(gpt.state_->model != nullptr,
          "Decoder: it is not declared in a model; call declare or tessera::shard first");
  const std::vector<int> data = data_ranks(gpt.state_->model->options().mesh, world.size());
  const int at_once = 1 + *std::ranges::max_element(data);
  std::vector<std::vector<std::int32_t>> all;
  for (std::int64_t first = 0; first < generation.samples; first += at_once) {
    const int mine = data[static_cast<std::size_t>(world.rank())];
    const auto texts = world.exchange(text_of(continued(gpt, generation, first + mine)));
    for (int i = 0; i < at_once && std::ssize(all) < generation.samples; ++i) {
      const auto rank = std::ranges::find(data, i) - data.begin();
      all.push_back(tokens_of(texts[static_cast<std::size_t>(rank)]));
    }
  }
  return all;
}

}  // namespace tessera::nn
