// Names and places of a decoder's parameters in the hub's files.
#include <fmt/format.h>

#include "nn/hub_fields.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/hub.hpp"
#include "tessera/shard/ranges.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::nn {
namespace {

struct Columns {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

Columns columns_of(const DecoderConfig& config, HubColumns which, std::int64_t all) {
  const std::int64_t queries = config.heads * config.head_size();
  const std::int64_t keys = config.key_heads() * config.head_size();
  const std::int64_t wide = config.mlp_elems();
  switch (which) {
    case HubColumns::queries:
      return {0, queries};
    case HubColumns::keys:
      return {queries, keys};
    case HubColumns::values:
      return {queries + keys, keys};
    case HubColumns::gate:
      return {0, wide};
    case HubColumns::up:
      return {wide, wide};
    case HubColumns::all:
      break;
  }
  return {0, all};
}

std::string with_layer(std::string_view pattern, std::string_view layer) {
  std::string name{pattern};
  const std::size_t at = name.find("{}");
  if (at != std::string::npos) { name.replace(at, 2, layer); }
  return name;
}

}  // namespace

std::vector<HubPiece> hub_pieces(const HubConfig& config, const ParameterInfo& parameter) {
  const HubFamily& family = hub_family(config.family);
  const bool of_layer = parameter.unit.starts_with("h.");
  const std::string_view layer = of_layer ? std::string_view{parameter.unit}.substr(2) : "";
  const bool vector = parameter.shape.rank() == 1;
  std::vector<HubPiece> pieces;
  for (const HubName& name : family.names) {
    if (name.parameter != parameter.name) { continue; }
    const auto [first, count] =
        columns_of(config.decoder, name.columns, parameter.shape[vector ? 0 : 1]);
    Shape shape{count};
    if (!vector && name.transposed) { shape = {count, parameter.shape[0]}; }
    if (!vector && !name.transposed) { shape = {parameter.shape[0], count}; }
    pieces.push_back({.tensor = with_layer(name.tensor, layer),
                      .shape = shape,
                      .first_column = first,
                      .columns = count,
                      .transposed = name.transposed && !vector});
  }
  if (pieces.empty()) {
    throw ConfigError(fmt::format("models of Hugging Face's family \"{}\" have no parameter '{}'",
                                  config.family, parameter.full_name()));
  }
  return pieces;
}

std::vector<ParameterInfo> parameters_of(const DecoderConfig& config) {
  std::vector<ParameterInfo> all;
  simulate_rank({.rank = 0, .ranks = 1}, [&](World& world) {
    ShardedModel model{world, {}};
    Decoder decoder{config};
    decoder.declare(model);
    for (std::size_t u = 0; u < model.unit_count(); ++u) {
      const Unit unit = model.unit(u);
      for (const ParameterSpec& spec : model.layout(unit).specs()) {
        if (spec.tied_to) { continue; }
        all.push_back({model.unit_name(unit), spec.name, spec.shape, spec.trainable,
                       static_cast<std::uint32_t>(all.size())});
      }
    }
  });
  return all;
}

}  // namespace tessera::nn
