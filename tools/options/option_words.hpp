#pragma once

#include <string>
#include <string_view>

namespace tessera::tools {

/// A message of the library in which the command's options replace the struct fields that they set:
/// "`persist_elems` is 3" becomes "--persist is 3".
[[nodiscard]] std::string with_options_for_fields(std::string message);

/// The field that `option` sets: "persist_elems" for "--persist". Empty if no field has it.
[[nodiscard]] std::string field_of(std::string_view option);

}  // namespace tessera::tools
