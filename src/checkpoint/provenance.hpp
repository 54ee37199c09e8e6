#pragma once

#include <string>

#include "tessera/engine/sharded_model.hpp"

namespace tessera {

/// provenance.json: which program wrote a checkpoint, when and on what. Nothing of it is read back.
[[nodiscard]] std::string provenance_of(ShardedModel& model, const std::string& command);

}  // namespace tessera
