// Like the CUDA module, links to three libraries. Reports the place of each.
#include <cstdio>

extern "C" {
const char* place_of_cublaslt();
const char* place_of_nccl();
const char* place_of_cudnn();
void say();
}

void say() {
  std::printf("cuBLASLt: %s, NCCL: %s, cuDNN: %s\n", place_of_cublaslt(), place_of_nccl(),
              place_of_cudnn());
}
