#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tessera::tools {

/// `json` as text. File names need not be UTF-8: invalid bytes become U+FFFD.
[[nodiscard]] inline std::string json_text(const nlohmann::ordered_json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace tessera::tools
