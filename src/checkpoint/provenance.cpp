#include "checkpoint/provenance.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

namespace tessera {

std::string provenance_of(ShardedModel& model, const std::string& command) {
  World& world = model.world();
  const ModelOptions& options = model.options();
  nlohmann::ordered_json mesh = nlohmann::ordered_json::array();
  for (const MeshDim& dim : options.mesh) {
    mesh.push_back({{"name", dim.name}, {"size", dim.size}});
  }
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  const nlohmann::ordered_json document = {
      {"tessera", TESSERA_VERSION},
      {"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(now))},
      {"command", command},
      {"ranks", world.size()},
      {"strategy", std::string{to_string(options.strategy)}},
      {"shard_group", options.shard_group},
      {"mesh", std::move(mesh)},
      {"device", world.device().name()},
      {"comm", world.gather_channel().communicator.name()},
      {"precision", std::string{to_string(options.compute)}},
      {"gradient_dtype", std::string{to_string(options.gradient)}},
      {"offload", std::string{to_string(options.offload)}}};
  // A command line may contain any bytes.
  return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace tessera
