#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace tessera::checkpoint {

/// Parses `text` as JSON. Throws FormatError with `path` and the place, naming the text `what`
/// ("the header"), for invalid JSON and for keys that occur twice in one object: their meaning
/// would depend on the reader.
[[nodiscard]] nlohmann::json parse_json(const std::string& path, std::string_view text,
                                        const char* what, std::size_t text_begins_at = 0);

/// The fields of a JSON object in a file. Throws FormatError with `path` and `where` ("tensor 'x'")
/// for a field that is missing or of another type. Both texts, and the object, outlive it.
class JsonFields {
 public:
  JsonFields(const std::string& path, const std::string& where, const nlohmann::json& object);

  [[nodiscard]] const std::string& text(const char* key) const;
  /// A whole number of at most `most`.
  [[nodiscard]] std::uint64_t number(const char* key, std::uint64_t most = UINT64_MAX) const;
  [[nodiscard]] const nlohmann::json& object(const char* key) const;
  [[nodiscard]] const nlohmann::json& array(const char* key) const;

  [[noreturn]] void refuse(const std::string& reason) const;

 private:
  [[nodiscard]] const nlohmann::json& field(const char* key, bool (nlohmann::json::*is)() const,
                                            const char* type) const;

  const std::string& path_;
  const std::string& where_;
  const nlohmann::json& object_;
};

}  // namespace tessera::checkpoint
