#pragma once

#include <string>

namespace tessera::tools {

/// What works together and what is refused, as Markdown: docs/support.md. Every cell is asked of
/// the library, which makes a model, trains or evaluates it on a rank that only counts, or of the
/// command's own parser; a refusal stands there with the words that a user would read.
[[nodiscard]] std::string support_table();

}  // namespace tessera::tools
