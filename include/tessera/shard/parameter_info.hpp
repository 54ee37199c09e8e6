#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/shape.hpp"

namespace tessera {

/// A parameter of a sharded model, as initialisers, exports and optimizers see it.
struct ParameterInfo {
  std::string unit;       ///< the name of the unit
  std::string name;       ///< the name within the unit
  Shape shape;            ///< the whole parameter's shape
  bool trainable = true;  ///< false: frozen
  std::uint32_t id = 0;   ///< the index in the order of declaration, from 0, without aliases

  /// Returns "unit.name".
  [[nodiscard]] std::string full_name() const { return unit + "." + name; }
};

}  // namespace tessera
