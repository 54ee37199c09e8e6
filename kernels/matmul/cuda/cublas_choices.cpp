// What the tools that record and check choices of algorithms ask the CUDA module.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "device/cuda/cuda_check.hpp"
#include "kernels/matmul/cuda/cublas_matmul.hpp"

extern "C" {

void tessera_cublaslt_machine(tessera::Stream stream, tessera::kernels::ProductMachine& machine) {
  cudaDeviceProp properties{};
  tessera::cuda::check(
      cudaGetDeviceProperties(&properties, tessera::cuda::cuda_stream(stream).ordinal()),
      "cudaGetDeviceProperties");
  machine.device = fmt::format("{} (compute capability {}.{}, {} multiprocessors)", properties.name,
                               properties.major, properties.minor, properties.multiProcessorCount);
  machine.cublaslt = static_cast<std::int64_t>(cublasLtGetVersion());
  machine.multiprocessors = properties.multiProcessorCount;
}

void tessera_cublaslt_offers(const tessera::kernels::MatMul& product, int most,
                             tessera::Stream stream,
                             std::vector<tessera::kernels::ProductAlgorithm>& offers) {
  using namespace tessera::kernels::cuda;
  offers.clear();
  if (!is_one_call(product)) { return; }
  auto& cublas = tessera::cuda::cuda_stream(stream).extension<CublasLt>();
  offers = cublas.offers(gemm_of(product, stream), most);
}
}
