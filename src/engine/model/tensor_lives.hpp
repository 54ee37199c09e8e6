#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tessera/base/shape.hpp"

namespace tessera::engine {

/// What tensors of a unit refer to, also after the scope and the model have ended.
struct TensorLife {
  std::string name;
  std::vector<Shape> shapes;       ///< by parameter
  std::uint64_t ended_scopes = 0;  ///< counts all scopes ever ended: tensors taken before are stale
};

/// One entry per unit; adding a unit moves none. A model shares them with its tensors.
using TensorLives = std::deque<TensorLife>;

}  // namespace tessera::engine
