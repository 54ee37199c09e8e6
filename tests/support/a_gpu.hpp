#pragma once

#include "base/environment.hpp"

namespace tessera::test {

/// Whether the CUDA module that tests are told to use is one for GPUs, not the emulated one:
/// libraries are then what they are, and take the time that they take.
[[nodiscard]] inline bool on_a_gpu() {
  const auto module = environment("TESSERA_CUDA_MODULE");
  return module && module->find("emulated") == std::string::npos;
}

}  // namespace tessera::test
