#include "checkpoint/provenance.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/rules/option_list.hpp"

namespace tessera::checkpoint {

namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json json_of(const Value& value) {
  const std::string text = engine::text_of(value);
  // A float has the digits of its text.
  return std::is_arithmetic_v<Value> ? Json::parse(text) : Json(text);
}
template <class Value>
Json json_of(const std::optional<Value>& value) {
  return value ? json_of(*value) : Json();
}
Json json_of(const std::vector<MeshDim>& mesh) {
  Json dims = Json::array();
  for (const MeshDim& dim : mesh) { dims.push_back({{"name", dim.name}, {"size", dim.size}}); }
  return dims;
}

}  // namespace

std::string provenance_of(ShardedModel& model, const std::string& command) {
  World& world = model.world();
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  Json document = {{"tessera", TESSERA_VERSION},
                   {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
                   {"command", command},
                   {"ranks", world.size()},
                   {"device", world.device().name()},
                   {"comm", world.gather_channel().communicator.name()}};
  engine::for_each_model_option(
      [&, options = engine::settled(model.options())](const auto& option) {
        document[std::string{option.name}] = json_of(option.of(options));
      });
  Json whole = Json::array();
  for (const WholeUnits& units : model.whole_units()) { whole.push_back(describe(units)); }
  if (!whole.empty()) { document["kept_whole"] = std::move(whole); }
  // A command line may contain any bytes.
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tessera::checkpoint
