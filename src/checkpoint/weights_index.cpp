#include "checkpoint/weights_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "checkpoint/json_string.hpp"
#include "checkpoint/parsed_json.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::checkpoint {

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_of(std::string_view{"/\\\0", 3}) == std::string_view::npos;
}

std::string format_index(std::vector<std::pair<std::string_view, std::string_view>> files,
                         std::uint64_t total_bytes) {
  std::sort(files.begin(), files.end());
  const auto twice = std::adjacent_find(
      files.begin(), files.end(), [](const auto& a, const auto& b) { return a.first == b.first; });
  if (twice != files.end()) {
    throw ContractError(fmt::format(
        "safetensors: the name '{}' is used twice; give each tensor its own", twice->first));
  }
  std::string text = fmt::format(
      "{{\n  \"metadata\": {{\n    \"total_size\": {}\n  }},\n  \"weight_map\": {{", total_bytes);
  const char* between = "\n    ";
  for (const auto& [tensor, file] : files) {
    text += between;
    append_json_string(text, tensor, "a tensor's name");
    text += ": ";
    append_json_string(text, file, "a file's name");
    between = ",\n    ";
  }
  return text + "\n  }\n}\n";
}

std::map<std::string, std::string> parse_index(const std::string& path, std::string_view text) {
  const nlohmann::json root = parse_json(path, text, "the index");
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (map == root.end() || !map->is_object()) {
    throw FormatError(
        fmt::format("{}: expected an object 'weight_map' with the file of each tensor", path));
  }
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>())) {
      throw FormatError(
          fmt::format("{}: weight_map: tensor '{}': expected the name of a file in the index's "
                      "folder, without folders",
                      path, shown(tensor)));
    }
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

}  // namespace tessera::checkpoint
