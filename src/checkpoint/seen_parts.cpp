#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/machine.hpp"
#include "checkpoint/joined_parts.hpp"
#include "checkpoint/step_folders.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {
namespace {

using nlohmann::json;

/// The part in `folder`, without its manifest; null if it cannot be read. The search for a
/// checkpoint reports that.
json seen_part(const std::filesystem::path& folder) {
  try {
    const checkpoint::CheckpointPart part = checkpoint::read_part(folder).part;
    return {part.manifest.step, part.save, part.part, part.parts};
  } catch (const FormatError&) { return nullptr; }
}

json seen_parts_in(const std::filesystem::path& folder) {
  json parts = json::array();
  try {
    for (const checkpoint::StepFolder& found :
         checkpoint::steps_in(folder, checkpoint::StepKind::part)) {
      if (json part = seen_part(found.path_in(folder)); !part.is_null()) { parts.push_back(part); }
    }
  } catch (const Error&) {
    // The folder cannot be listed: that is reported too.
  }
  return parts;
}

/// This rank's machine and parts.
std::string text_of_mine(const std::filesystem::path& folder) {
  const json mine = {{"machine", machine_id()}, {"parts", seen_parts_in(folder)}};
  return mine.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

SeenParts seen_parts(World& world, const std::filesystem::path& folder) {
  SeenParts seen;
  std::set<std::string> machines;
  const std::vector<std::string> texts = world.exchange(text_of_mine(folder));
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    const json one = json::parse(texts[rank]);
    machines.insert(one.at("machine").get<std::string>());
    for (const json& part : one.at("parts")) {
      seen.all.push_back({static_cast<int>(rank), part[0].get<std::int64_t>(),
                          part[1].get<std::string>(), part[2].get<int>(), part[3].get<int>()});
    }
  }
  seen.machines = static_cast<int>(machines.size());
  return seen;
}

}  // namespace tessera
