#include "checkpoint/parsed_json.hpp"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::checkpoint {

nlohmann::json parse_json(const std::string& path, std::string_view text, const char* what,
                          std::size_t text_begins_at) {
  std::vector<std::set<std::string>> keys;  // keys of the objects that are open
  const auto refuse_repeated = [&](int, nlohmann::json::parse_event_t event,
                                   nlohmann::json& parsed) {
    if (event == nlohmann::json::parse_event_t::object_start) { keys.emplace_back(); }
    if (event == nlohmann::json::parse_event_t::object_end) { keys.pop_back(); }
    if (event == nlohmann::json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      throw FormatError(
          fmt::format("{}: {} has '{}' twice", path, what, shown(parsed.get<std::string>())));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, refuse_repeated);
  } catch (const nlohmann::json::parse_error& error) {
    throw FormatError(fmt::format("{}: byte {}: {} is not valid JSON: {}", path,
                                  text_begins_at + error.byte, what, shown(error.what())));
  } catch (const nlohmann::json::exception& error) {  // a number beyond every type
    throw FormatError(fmt::format("{}: {} is not valid JSON: {}", path, what, shown(error.what())));
  }
}

JsonFields::JsonFields(const std::string& path, const std::string& where,
                       const nlohmann::json& object)
    : path_{path}, where_{where}, object_{object} {
  if (!object.is_object()) { refuse("expected an object"); }
}

const std::string& JsonFields::text(const char* key) const {
  return field(key, &nlohmann::json::is_string, "a text").get_ref<const std::string&>();
}

std::uint64_t JsonFields::number(const char* key, std::uint64_t most) const {
  const auto value =
      field(key, &nlohmann::json::is_number_unsigned, "a whole number").get<std::uint64_t>();
  if (value > most) { refuse(fmt::format("'{}' is {}, expected at most {}", key, value, most)); }
  return value;
}

const nlohmann::json& JsonFields::object(const char* key) const {
  return field(key, &nlohmann::json::is_object, "an object");
}

const nlohmann::json& JsonFields::array(const char* key) const {
  return field(key, &nlohmann::json::is_array, "an array");
}

const nlohmann::json& JsonFields::field(const char* key, bool (nlohmann::json::*is)() const,
                                        const char* type) const {
  const auto found = object_.find(key);
  if (found == object_.end() || !((*found).*is)()) {
    refuse(fmt::format("expected {} as '{}'", type, key));
  }
  return *found;
}

void JsonFields::refuse(const std::string& reason) const {
  throw FormatError(fmt::format("{}: {}: {}", path_, shown(where_), shown(reason)));
}

}  // namespace tessera::checkpoint
