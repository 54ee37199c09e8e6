#pragma once

#include <optional>
#include <string>

namespace tessera {

/// The environment variable `name`, if set. The only place that reads the environment.
[[nodiscard]] std::optional<std::string> environment(const char* name);

}  // namespace tessera
