#pragma once

#include <string>

#include "tessera/engine/sharded_model.hpp"

namespace tessera::checkpoint {

/// provenance.json: the program that wrote a checkpoint, when, and on which machine. It is never
/// read back.
[[nodiscard]] std::string provenance_of(ShardedModel& model, const std::string& command);

}  // namespace tessera::checkpoint
