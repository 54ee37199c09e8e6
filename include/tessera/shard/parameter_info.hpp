#pragma once

#include <cstdint>
#include <string>

#include "tessera/base/shape.hpp"

namespace tessera {

/// A parameter of a sharded model, as initialisers, exports and optimizers see it.
struct ParameterInfo {
  std::string unit;
  std::string name;  ///< within the unit
  Shape shape;
  bool trainable = true;
  std::uint32_t id = 0;  ///< order of registration, from 0; aliases have none

  /// "unit.name".
  [[nodiscard]] std::string full_name() const { return unit + "." + name; }
};

}  // namespace tessera
