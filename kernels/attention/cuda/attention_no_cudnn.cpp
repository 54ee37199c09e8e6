// Replaces attention_cudnn.cpp in builds without cuDNN.
#include "kernels/attention/cuda/attention_cudnn.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device.hpp"

namespace tessera::kernels::cuda {
namespace {

[[noreturn]] void refuse() {
  throw DeviceError{"this build of the CUDA module has no cuDNN"};
}

}  // namespace

bool cudnn_computes(const AttentionForward&, Stream) {
  return false;
}
bool cudnn_computes(const AttentionBackward&, Stream) {
  return false;
}

void cudnn_attention_forward(const AttentionForward&, Stream) {
  refuse();
}
void cudnn_attention_backward(const AttentionBackward&, Stream) {
  refuse();
}

}  // namespace tessera::kernels::cuda

extern "C" {

void tessera_cudnn_look(tessera::CudaMachine& machine) {
  machine.without.emplace_back("cuDNN, for attention in 16 bits: " TESSERA_CUDNN_PROBLEM);
}

void tessera_cudnn_require() {}
}
