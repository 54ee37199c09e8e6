#include "device/cuda/cuda_configured.hpp"

namespace tessera::cuda {

const ConfiguredFiles& configured_files() noexcept {
  static constexpr ConfiguredFiles files{TESSERA_CUBLASLT_FILE, TESSERA_NCCL_FILE,
                                         TESSERA_CUDNN_FILE};
  return files;
}

}  // namespace tessera::cuda
