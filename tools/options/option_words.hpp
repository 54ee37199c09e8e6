#pragma once

#include <string>

namespace tessera::tools {

/// A message of the library with the fields of its structs as the options of the command that set
/// them: "persist_elems is 3" becomes "--persist is 3".
[[nodiscard]] std::string with_options_for_fields(std::string message);

}  // namespace tessera::tools
