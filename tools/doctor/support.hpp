#pragma once

#include <string>

namespace tessera::tools {

/// Lists, as Markdown, the options that work together and those that are refused: docs/support.md.
/// The answers come from the library, which makes a model and trains or evaluates it on a rank that
/// only counts, or from the command's own parser. A refusal is quoted as a user would read it.
[[nodiscard]] std::string support_table();

}  // namespace tessera::tools
