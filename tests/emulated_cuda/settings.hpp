#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated_cuda {

/// Settings of the emulation, by environment variables or by a test (controls.hpp).
struct Settings {
  std::uint64_t seed = 1;                           ///< TESSERA_EMULATED_CUDA_SEED
  int devices = 1;                                  ///< TESSERA_EMULATED_CUDA_DEVICES
  std::size_t device_bytes = std::size_t{2} << 30;  ///< TESSERA_EMULATED_CUDA_BYTES
  int most_delay_us = 0;                            ///< TESSERA_EMULATED_CUDA_DELAY_US
  int capability = 90;                              ///< TESSERA_EMULATED_CUDA_CAPABILITY
  int multiprocessors = 4;                          ///< TESSERA_EMULATED_CUDA_MULTIPROCESSORS
  std::size_t context_bytes = 0;                    ///< TESSERA_EMULATED_CUDA_CONTEXT_BYTES
  std::size_t others_bytes = 0;                     ///< TESSERA_EMULATED_CUDA_OTHERS_BYTES
  int queue = 0;                                    ///< TESSERA_EMULATED_CUDA_QUEUE
  int callbacks = 0;                                ///< TESSERA_EMULATED_CUDA_CALLBACKS
  int nvml = 2;                                     ///< TESSERA_EMULATED_CUDA_NVML
};

/// Read from the environment at the first call.
[[nodiscard]] Settings& settings();

/// A pseudo-random number, a function of the seed and the arguments.
[[nodiscard]] std::uint64_t drawn(std::uint64_t a, std::uint64_t b, std::uint64_t c = 0);

}  // namespace emulated_cuda
