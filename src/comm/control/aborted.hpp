#pragma once

#include "tessera/base/error.hpp"

namespace tessera::comm {

/// The CommError of a rank that hears of another rank's failure: an echo, never the cause.
class Aborted : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace tessera::comm
