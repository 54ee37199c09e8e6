// Replaces matmul_onednn.cpp in builds without oneDNN.
#include "kernels/matmul/matmul_onednn.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/product_library.hpp"

namespace tessera {

std::string product_library() {
  return {};
}

namespace kernels {

bool onednn_is_faster(DType) {
  return false;
}
bool onednn_computes(DType) {
  return false;
}

void onednn_matmul(const MatMul&) {
  throw DeviceError{
      "this build has no oneDNN: install it (Debian: libdnnl-dev) and build again with "
      "-DTESSERA_ONEDNN=ON"};
}

std::size_t onednn_scratch_bytes(const MatMul&) {
  return 0;
}

}  // namespace kernels
}  // namespace tessera
