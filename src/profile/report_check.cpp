#include "profile/report_check.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tessera/base/error.hpp"

namespace tessera::profile {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& where, const char* expected) {
  throw FormatError{fmt::format("report: {}: expected {}", where, expected)};
}

using Check = void(const Json& value, const std::string& where);

void number(const Json& value, const std::string& where) {
  if (!value.is_number()) { refuse(where, "a number"); }
}

void number_or_null(const Json& value, const std::string& where) {
  if (!value.is_number() && !value.is_null()) { refuse(where, "a number or null"); }
}

void text(const Json& value, const std::string& where) {
  if (!value.is_string()) { refuse(where, "a string"); }
}

void numbers_by_name(const Json& value, const std::string& where) {
  if (!value.is_object()) { refuse(where, "an object of numbers"); }
  for (const auto& [name, entry] : value.items()) {
    number(entry, fmt::format("{}.{}", where, name));
  }
}

void member(const Json& object, const std::string& where, const char* name, Check& check) {
  if (!object.is_object()) { refuse(where, "an object"); }
  const auto found = object.find(name);
  if (found == object.end()) { refuse(where, fmt::format("a member \"{}\"", name).c_str()); }
  check(*found, where + "." + name);
}

void optional_member(const Json& object, const std::string& where, const char* name, Check& check) {
  if (object.is_object() && object.contains(name)) { member(object, where, name, check); }
}

template <Check& each>
void list_of(const Json& value, const std::string& where) {
  if (!value.is_array()) { refuse(where, "a list"); }
  std::size_t i = 0;
  for (const Json& entry : value) { each(entry, fmt::format("{}[{}]", where, i++)); }
}

void model(const Json& value, const std::string& where) {
  member(value, where, "name", text);
  member(value, where, "parameters", number);
}

// {"pipe": [first, last], ...}
void places(const Json& value, const std::string& where) {
  if (!value.is_object()) { refuse(where, "an object of places"); }
  for (const auto& [name, range] : value.items()) {
    const bool shaped = range.is_array() && range.size() == 2;
    if (!shaped) { refuse(fmt::format("{}.{}", where, name), "[first, last]"); }
    list_of<number>(range, fmt::format("{}.{}", where, name));
  }
}

void rank(const Json& value, const std::string& where) {
  member(value, where, "rank", number);
  member(value, where, "peak_bytes", number);
  optional_member(value, where, "planned_peak_bytes", number_or_null);
  optional_member(value, where, "count", number);
  optional_member(value, where, "places", places);
  optional_member(value, where, "host_peak_bytes", number);
  optional_member(value, where, "planned_host_peak_bytes", number);
  member(value, where, "at_peak", numbers_by_name);
  member(value, where, "model_state_bytes", numbers_by_name);
}

void strategy(const Json& value, const std::string& where) {
  member(value, where, "name", text);
  member(value, where, "ranks", list_of<rank>);
  if (value["ranks"].empty()) { refuse(where + ".ranks", "one rank or more"); }
  optional_member(value, where, "losses", list_of<number_or_null>);
  optional_member(value, where, "seconds_per_step", number_or_null);
  optional_member(value, where, "tokens_per_second", number_or_null);
}

// [t_us, phase, unit, [bytes ...]]
void point(const Json& value, const std::string& where) {
  const bool shaped = value.is_array() && value.size() == 4 && value[0].is_number() &&
                      value[1].is_string() && value[2].is_string();
  if (!shaped) { refuse(where, "[microseconds, phase, unit, bytes by category]"); }
  list_of<number>(value[3], where + "[3]");
}

// [begin_us, end_us, stream, what, unit(, bytes)]
void span(const Json& value, const std::string& where) {
  const bool shaped = value.is_array() && value.size() >= 5 && value[0].is_number() &&
                      value[1].is_number() && value[2].is_string() && value[3].is_string() &&
                      value[4].is_string();
  if (!shaped) { refuse(where, "[begin, end, stream, what, unit]"); }
}

void timeline(const Json& value, const std::string& where) {
  member(value, where, "strategy", text);
  member(value, where, "rank", number);
  member(value, where, "step", number);
  member(value, where, "categories", list_of<text>);
  member(value, where, "points", list_of<point>);
  member(value, where, "spans", list_of<span>);
  const std::size_t categories = value["categories"].size();
  for (const Json& entry : value["points"]) {
    if (entry[3].size() != categories) { refuse(where, "as many bytes as categories"); }
  }
}

// [begin, end, work, stage, micro-batch]
void action(const Json& value, const std::string& where) {
  const bool shaped = value.is_array() && value.size() == 5 && value[0].is_number() &&
                      value[1].is_number() && value[2].is_string() && value[3].is_number() &&
                      value[4].is_number();
  if (!shaped) { refuse(where, "[begin, end, work, stage, micro-batch]"); }
}

void recorded(const Json& value, const std::string& where) {
  member(value, where, "strategy", text);
  member(value, where, "step", number);
  member(value, where, "length", number);
  member(value, where, "ranks", list_of<list_of<action>>);
}

void pipeline(const Json& value, const std::string& where) {
  member(value, where, "schedule", text);
  member(value, where, "stages", number);
  member(value, where, "micro_batches", number);
  member(value, where, "length", number);
  optional_member(value, where, "ranks", list_of<list_of<action>>);
  optional_member(value, where, "recorded", list_of<recorded>);
}

void step(const Json& value, const std::string& where) {
  member(value, where, "step", number);
  member(value, where, "loss", number_or_null);
  member(value, where, "seconds", number);
}

void largest(const Json& value, const std::string& where) {
  member(value, where, "ranks", number);
  member(value, where, "parameters", number_or_null);
  member(value, where, "peak_bytes", number_or_null);
  optional_member(value, where, "measured_peak_bytes", number_or_null);
}

void scale_strategy(const Json& value, const std::string& where) {
  member(value, where, "name", text);
  member(value, where, "largest", list_of<largest>);
}

void strategies_of(const Json& document, const std::string& where) {
  member(document, where, "model", model);
  member(document, where, "ranks", number);
  member(document, where, "strategies", list_of<strategy>);
  optional_member(document, where, "timelines", list_of<timeline>);
  optional_member(document, where, "mesh", numbers_by_name);
  optional_member(document, where, "pipeline", pipeline);
  if (document["kind"] == "train") {
    optional_member(document, where, "steps", list_of<step>);
  } else {
    optional_member(document, where, "steps", number);
  }
  optional_member(document, where, "budget_bytes", number_or_null);
}

void scale(const Json& document, const std::string& where) {
  member(document, where, "family", text);
  member(document, where, "budget_bytes", number);
  member(document, where, "ranks", list_of<number>);
  member(document, where, "strategies", list_of<scale_strategy>);
}

Json parsed(std::string_view json) {
  try {
    return Json::parse(json);
  } catch (const Json::parse_error& error) {
    throw FormatError{
        fmt::format("report: byte {}: this is not JSON ({})", error.byte, error.what())};
  }
}

}  // namespace

void require_report(std::string_view json) {
  const Json document = parsed(json);
  const std::string where = "document";
  member(document, where, "kind", text);
  for (const char* name : {"command", "created", "version"}) {
    optional_member(document, where, name, text);
  }
  const std::string kind = document["kind"];
  if (kind == "scale") { return scale(document, where); }
  if (kind == "compare" || kind == "plan" || kind == "train") {
    return strategies_of(document, where);
  }
  refuse(where + ".kind", R"("compare", "train", "plan" or "scale")");
}

}  // namespace tessera::profile
