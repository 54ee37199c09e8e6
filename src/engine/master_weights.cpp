#include "tessera/engine/master_weights.hpp"

#include <fmt/format.h>

#include "tessera/base/error.hpp"

namespace tessera {

std::string_view to_string(MasterWeights kind) noexcept {
  return kind == MasterWeights::fp32 ? "fp32" : "remainder";
}

MasterWeights parse_master_weights(std::string_view name) {
  for (const MasterWeights kind : {MasterWeights::fp32, MasterWeights::remainder}) {
    if (name == to_string(kind)) { return kind; }
  }
  throw ConfigError{fmt::format("unknown master weights \"{}\": choose fp32 or remainder", name)};
}

}  // namespace tessera
