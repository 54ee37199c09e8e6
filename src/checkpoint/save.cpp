#include "checkpoint/saver.hpp"
#include "tessera/checkpoint/checkpoint.hpp"

namespace tessera {

SaveReport save(ShardedModel& model, const std::filesystem::path& folder,
                const CheckpointExtras& extras, const SaveOptions& options) {
  Saver saver{model, {.folder = folder, .save = options}};
  saver.begin(extras);
  return saver.newest();
}

}  // namespace tessera
