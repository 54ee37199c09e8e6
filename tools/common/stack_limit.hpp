#pragma once

namespace tessera::tools {

/// ConfigError if the limit of stacks (ulimit -s), which threads get as their size, is below what
/// ranks need.
void require_stack();

}  // namespace tessera::tools
