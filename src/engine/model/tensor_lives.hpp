#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tessera/base/shape.hpp"

namespace tessera::engine {

/// What tensors of a unit look at, also when the scope and the model have ended.
struct TensorLife {
  std::string name;
  std::vector<Shape> shapes;       ///< by parameter
  std::uint64_t ended_scopes = 0;  ///< of all time: tensors taken before are stale
};

/// By unit; none moves when another is added. A model shares them with its tensors.
using TensorLives = std::deque<TensorLife>;

}  // namespace tessera::engine
