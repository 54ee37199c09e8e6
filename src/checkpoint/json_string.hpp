#pragma once

#include <string>
#include <string_view>

namespace tessera::checkpoint {

/// Appends `text` as a quoted JSON string to `json`. Throws ContractError naming `what` if it is
/// not UTF-8.
void append_json_string(std::string& json, std::string_view text, const char* what);

}  // namespace tessera::checkpoint
