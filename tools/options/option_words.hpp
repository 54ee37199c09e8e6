#pragma once

#include <string>
#include <string_view>

namespace tessera::tools {

/// A message of the library with the fields of its structs as the options of the command that set
/// them: "`persist_elems` is 3" becomes "--persist is 3".
[[nodiscard]] std::string with_options_for_fields(std::string message);

/// The field that `option` sets: "persist_elems" for "--persist". Empty if the library has none.
[[nodiscard]] std::string_view field_of(std::string_view option);

}  // namespace tessera::tools
