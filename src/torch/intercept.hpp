#pragma once

namespace tessera::torch {

/// While one lives, this thread shows each operator of libtorch that reads or writes a Place to the
/// Passes of that place before it runs. Autograd's threads do the same for a backward pass that
/// this thread has begun. Guards nest.
class Interception {
 public:
  Interception();
  ~Interception();
  Interception(const Interception&) = delete;
  Interception& operator=(const Interception&) = delete;
};

}  // namespace tessera::torch
