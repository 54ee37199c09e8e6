#include "tools/options/resharding.hpp"

#include <fmt/format.h>

namespace tessera::tools {

bool gathers(Strategy strategy) {
  return traits_of(strategy).parameters == Holding::sharded;
}

std::string describe_resharding(const Settings& settings) {
  std::string text = fmt::format("prefetch {}", settings.sharded.prefetch);
  if (settings.sharded.tuning.prefetch_backward) {
    text += fmt::format(" ({} backward)", *settings.sharded.tuning.prefetch_backward);
  }
  if (settings.sharded.reshard == Reshard::after_backward) { text += ", resharded after backward"; }
  if (settings.sharded.persist_elems > 0) {
    text += fmt::format(", units up to {} elements persist", settings.sharded.persist_elems);
  }
  return text;
}

std::string resharding_words(const Settings& settings) {
  std::string words = fmt::format(" --prefetch {}", settings.sharded.prefetch);
  if (settings.sharded.tuning.prefetch_backward) {
    words += fmt::format(" --prefetch-backward {}", *settings.sharded.tuning.prefetch_backward);
  }
  if (settings.sharded.reshard == Reshard::after_backward) {
    words += fmt::format(" --reshard {}", to_string(settings.sharded.reshard));
  }
  if (settings.sharded.persist_elems > 0) {
    words += fmt::format(" --persist {}", settings.sharded.persist_elems);
  }
  return words;
}

}  // namespace tessera::tools
