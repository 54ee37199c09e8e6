#pragma once

#include "base/environment.hpp"

namespace tessera::test {

/// Whether the CUDA module under test is one for GPUs, not the emulated one: libraries are then the
/// real ones, with their real times.
[[nodiscard]] inline bool on_a_gpu() {
  const auto module = environment("TESSERA_CUDA_MODULE");
  return module && module->find("emulated") == std::string::npos;
}

}  // namespace tessera::test
