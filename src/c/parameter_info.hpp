#pragma once

#include <string>

#include "tessera/c.h"
#include "tessera/shard/parameter_info.hpp"

namespace tessera::c {

/// A parameter as seen by callbacks. Borrows `parameter`.
class CParameterInfo {
 public:
  explicit CParameterInfo(const ParameterInfo& parameter)
      : full_name_{parameter.full_name()},
        info_{.unit = parameter.unit.c_str(),
              .name = parameter.name.c_str(),
              .full_name = full_name_.c_str(),
              .shape = parameter.shape.dims().data(),
              .dims = parameter.shape.rank(),
              .trainable = parameter.trainable ? 1 : 0,
              .elems = parameter.shape.elems(),
              .id = parameter.id} {}
  CParameterInfo(const CParameterInfo&) = delete;
  CParameterInfo& operator=(const CParameterInfo&) = delete;
  ~CParameterInfo() = default;

  [[nodiscard]] const tessera_parameter_info& info() const noexcept { return info_; }

 private:
  std::string full_name_;
  tessera_parameter_info info_;
};

}  // namespace tessera::c
