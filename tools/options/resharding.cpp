#include "tools/options/resharding.hpp"

#include <fmt/format.h>

namespace tessera::tools {

bool gathers(Strategy strategy) {
  return traits_of(strategy).parameters == Holding::sharded;
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
