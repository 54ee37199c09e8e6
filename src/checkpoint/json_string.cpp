#include "checkpoint/json_string.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/base/error.hpp"

namespace tessera::checkpoint {

void append_json_string(std::string& json, std::string_view text, const char* what) {
  const bool plain = std::all_of(text.begin(), text.end(), [](char c) {
    return c >= ' ' && c <= '~' && c != '"' && c != '\\';
  });
  if (plain) {
    json.push_back('"');
    json.append(text);
    json.push_back('"');
    return;
  }
  try {
    json += nlohmann::json(text).dump();
  } catch (const nlohmann::json::type_error&) {
    const auto shown =
        nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    throw ContractError(fmt::format("{} is not UTF-8: {}", what, shown));
  }
}

}  // namespace tessera::checkpoint
