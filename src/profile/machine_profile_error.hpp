#pragma once

#include <string>

namespace tessera::profile {

/// Throws ConfigError: "the machine's profile " and `what`.
[[noreturn]] void refuse_profile(const std::string& what);

}  // namespace tessera::profile
