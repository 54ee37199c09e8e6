#include "tools/options/option_words.hpp"

#include <fmt/format.h>

#include <cctype>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "tools/options/option_table.hpp"

namespace tessera::tools {
namespace {

/// Whether `c` continues a word: a path may contain a field's name.
bool belongs(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '/' ||
         c == '\'';
}

void replace(std::string& text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const std::size_t end = at + from.size();
    const bool inside = (at > 0 && (belongs(text[at - 1]) || text[at - 1] == '.')) ||
                        (end < text.size() && belongs(text[end])) ||
                        (end + 1 < text.size() && text[end] == '.' && belongs(text[end + 1]));
    if (!inside) { text.replace(at, from.size(), to); }
    at += inside ? from.size() : to.size();
  }
}

std::vector<std::string> fields_of(const OptionRow& row) {
  std::istringstream words{std::string{row.fields}};
  return {std::istream_iterator<std::string>{words}, {}};
}

}  // namespace

std::string with_options_for_fields(std::string message) {
  for (const OptionRow& row : option_table()) {
    // A value in small letters stands for itself: the option takes no other.
    const bool has_one_value = !row.value.empty() && std::islower(row.value.front()) != 0;
    const std::string option =
        has_one_value ? fmt::format("{} {}", row.name, row.value) : std::string{row.name};
    for (const std::string& field : fields_of(row)) {
      replace(message, "`" + field + "`", option);
      if (field.find('_') != std::string::npos) { replace(message, field, option); }
    }
  }
  return message;
}

std::string field_of(std::string_view option) {
  for (const OptionRow& row : option_table()) {
    if (row.name == option && !row.fields.empty()) { return fields_of(row).front(); }
  }
  return {};
}

}  // namespace tessera::tools
