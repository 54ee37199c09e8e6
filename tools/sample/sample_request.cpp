#include "tools/sample/sample_request.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"
#include "tools/common/input_file.hpp"

namespace tessera::tools {
namespace {

// The default beginning of a text.
constexpr std::string_view kPrompt = "\n";
constexpr std::int64_t kBytes = 256;

std::string read_prompt(const std::string& path) {
  std::string text = read_input("--prompt-file", path);
  if (text.empty()) { throw ConfigError(fmt::format("--prompt-file: {} is empty", path)); }
  return text;
}

std::string prompt_text(const Settings& settings) {
  if (!settings.prompt_file.empty()) { return read_prompt(settings.prompt_file); }
  return settings.prompt.empty() ? std::string{kPrompt} : settings.prompt;
}

void check_token(std::int64_t token, std::int64_t vocab) {
  if (token < vocab) { return; }
  throw ConfigError(
      fmt::format("the prompt holds token {} and the model's vocabulary is 0 to {}; give another, "
                  "or the --vocab that the weights were trained with",
                  token, vocab - 1));
}

std::vector<std::int32_t> prompt_tokens(const Settings& settings, const nn::DecoderConfig& config) {
  std::vector<std::int32_t> tokens = settings.prompt_tokens;
  if (tokens.empty() && config.vocab > kBytes) {
    throw ConfigError(
        fmt::format("the model's vocabulary of {} tokens is not one of bytes; give the prompt as "
                    "numbers (--prompt-tokens 1,2,3), and numbers will be printed",
                    config.vocab));
  }
  if (tokens.empty()) {
    for (const char c : prompt_text(settings)) { tokens.push_back(static_cast<unsigned char>(c)); }
  }
  for (const std::int32_t token : tokens) { check_token(token, config.vocab); }
  return tokens;
}

}  // namespace

nn::Generation generation_of(const Settings& settings, const nn::DecoderConfig& config) {
  const int prompts = (settings.prompt.empty() ? 0 : 1) + (settings.prompt_file.empty() ? 0 : 1) +
                      (settings.prompt_tokens.empty() ? 0 : 1);
  if (prompts > 1) {
    throw ConfigError("--prompt, --prompt-file and --prompt-tokens cannot be combined; give one");
  }
  nn::Generation generation{.prompt = prompt_tokens(settings, config),
                            .tokens = settings.count,
                            .samples = settings.samples,
                            .sampler = {.temperature = settings.temperature,
                                        .top_k = settings.top_k,
                                        .top_p = settings.top_p,
                                        .seed = settings.seed}};
  generation.sampler.validate();
  return generation;
}

}  // namespace tessera::tools
