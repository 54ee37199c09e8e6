#pragma once

#include "base/environment.hpp"

namespace tessera::test {

/// Whether the CUDA module under test is for GPUs rather than emulated: then the libraries and
/// their times are real.
[[nodiscard]] inline bool on_a_gpu() {
  const auto module = environment("TESSERA_CUDA_MODULE");
  return module && module->find("emulated") == std::string::npos;
}

}  // namespace tessera::test
