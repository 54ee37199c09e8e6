#include "base/environment.hpp"

#include <cstdlib>

namespace tessera {

std::optional<std::string> environment(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): only joining NCCL sets variables
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

}  // namespace tessera
