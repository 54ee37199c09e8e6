#include "tools/options/resharding.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/error.hpp"

namespace tessera::tools {

bool gathers(Strategy strategy) {
  return traits_of(strategy).parameters == Holding::sharded;
}

void check_resharding(const Settings& settings, const std::vector<Strategy>& strategies) {
  if (std::ranges::any_of(strategies, gathers)) { return; }
  for (const char* option : {"--prefetch", "--prefetch-backward", "--reshard", "--persist"}) {
    if (!settings.has(option)) { continue; }
    throw ConfigError(
        fmt::format("{} has no effect under {}, whose ranks hold parameters whole; leave it out, "
                    "or use zero3 or hybrid, which gather them",
                    option, to_string(strategies.front())));
  }
}

void set_resharding(const Settings& settings, ModelOptions& options) {
  if (!gathers(options.strategy)) { return; }
  options.prefetch = settings.prefetch;
  options.prefetch_backward = settings.prefetch_backward;
  options.reshard = settings.reshard;
  options.persist_elems = settings.persist_elems;
}

std::string describe_resharding(const Settings& settings) {
  std::string text = fmt::format("prefetch {}", settings.prefetch);
  if (settings.prefetch_backward) {
    text += fmt::format(" ({} backward)", *settings.prefetch_backward);
  }
  if (settings.reshard == Reshard::after_backward) { text += ", resharded after backward"; }
  if (settings.persist_elems > 0) {
    text += fmt::format(", units up to {} elements persist", settings.persist_elems);
  }
  return text;
}

std::string resharding_words(const Settings& settings) {
  std::string words = fmt::format(" --prefetch {}", settings.prefetch);
  if (settings.prefetch_backward) {
    words += fmt::format(" --prefetch-backward {}", *settings.prefetch_backward);
  }
  if (settings.reshard == Reshard::after_backward) {
    words += fmt::format(" --reshard {}", to_string(settings.reshard));
  }
  if (settings.persist_elems > 0) { words += fmt::format(" --persist {}", settings.persist_elems); }
  return words;
}

}  // namespace tessera::tools
