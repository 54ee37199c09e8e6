#include "checkpoint/provenance.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "engine/rules/option_list.hpp"

namespace tessera {

std::string provenance_of(ShardedModel& model, const std::string& command) {
  World& world = model.world();
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  nlohmann::ordered_json document = {
      {"tessera", TESSERA_VERSION},
      {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
      {"command", command},
      {"ranks", world.size()},
      {"device", world.device().name()},
      {"comm", world.gather_channel().communicator.name()}};
  engine::for_each_model_option(
      [&, options = engine::settled(model.options())](const auto& option) {
        const auto& value = option.of(options);
        if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(value)>>) {
          document[std::string{option.name}] = value;
        } else {
          document[std::string{option.name}] = engine::text_of(value);
        }
      });
  // A command line may contain any bytes.
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
