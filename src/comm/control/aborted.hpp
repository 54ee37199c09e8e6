#pragma once

#include "tessera/base/error.hpp"

namespace tessera {

/// The CommError of a rank that is told of another's trouble: an echo, never the cause.
class Aborted : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace tessera
