#include "base/environment.hpp"

#include <cstdlib>

namespace tessera {

std::optional<std::string> environment(const char* name) {
  // NOLINTNEXTLINE(concurrency-mt-unsafe): safe beside itself; a program that sets variables later
  // has to see to it
  const char* const value = std::getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>{value};
}

}  // namespace tessera
