#include "nn/hub_fields.hpp"

#include <fmt/format.h>

#include <utility>

#include "tessera/base/error.hpp"
#include "tessera/base/shown.hpp"

namespace tessera::nn {

using nlohmann::json;

HubFields::HubFields(std::string path, const json& object, std::string within)
    : path_{std::move(path)}, object_{object}, within_{std::move(within)} {}

const json* HubFields::take(std::string_view field) {
  taken_.emplace(field);
  const auto found = object_.find(field);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::int64_t HubFields::whole(std::string_view field, std::optional<std::int64_t> otherwise,
                              std::int64_t least) {
  const json* value = take(field);
  if (value == nullptr && otherwise) { return *otherwise; }
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  const bool whole = value != nullptr && value->is_number_integer() && *value <= kMost;
  if (!whole || value->get<std::int64_t>() < least) {
    refuse(field, fmt::format("a whole number of at least {}", least));
  }
  return value->get<std::int64_t>();
}

std::optional<double> HubFields::number(std::string_view field) {
  const json* value = take(field);
  if (value == nullptr) { return {}; }
  if (!value->is_number()) { refuse(field, "a number"); }
  return value->get<double>();
}

bool HubFields::flag(std::string_view field, bool otherwise) {
  const json* value = take(field);
  if (value == nullptr) { return otherwise; }
  if (!value->is_boolean()) { refuse(field, "true or false"); }
  return value->get<bool>();
}

std::vector<std::string> HubFields::rest() const {
  std::vector<std::string> left;
  for (const auto& [field, value] : object_.items()) {
    if (!taken_.contains(field)) { left.push_back(field); }
  }
  return left;
}

void HubFields::refuse(std::string_view field, std::string_view expected) const {
  const auto found = object_.find(field);
  const std::string value =
      found == object_.end()
          ? "missing"
          : shown(found->dump(-1, ' ', false, json::error_handler_t::replace), 60);
  throw FormatError(fmt::format("{}: field '{}{}' is {}, expected {}", path_, within_, shown(field),
                                value, expected));
}

}  // namespace tessera::nn
