#include "device/cuda/cuda_host_word.hpp"

#include <cudaTypedefs.h>
#include <fmt/format.h>

#include <atomic>

#include "device/cuda/cuda_driver.hpp"
#include "tessera/base/error.hpp"

namespace tessera::cuda {
namespace {

constexpr const char* kWait = "cuStreamWaitValue32";
constexpr const char* kAdvice =
    "update the driver (12.0 is the first of CUDA 12), or keep the optimizer on the device "
    "(`offload` none, no --offload optimizer)";

// The word is a ticket's low 32 bits, which the device compares cyclically. It starts shortly
// before it wraps, so that every run tests the wrap.
constexpr std::uint64_t kBegin = 0xFFFF'FFF8U;

std::uint32_t value_of(std::uint64_t ticket) noexcept {
  return static_cast<std::uint32_t>(kBegin + ticket);
}

}  // namespace

CudaHostWord::CudaHostWord(cudaStream_t idle) : wait_{driver_function(kWait)} {
  if (wait_ == nullptr) {
    throw ConfigError{
        fmt::format("the CUDA driver has no {}, with which the device waits for host work; {}",
                    kWait, kAdvice)};
  }
  reached(0);
  const int status = enqueue_wait(idle, 0);
  if (status != CUDA_SUCCESS) {
    throw ConfigError{fmt::format(
        "this CUDA device cannot wait for host work: {} fails with the driver's error {}; {}",
        kWait, status, kAdvice)};
  }
}

void CudaHostWord::reached(std::uint64_t ticket) noexcept {
  std::atomic_ref<std::uint32_t>{*word_.at(0)}.store(value_of(ticket), std::memory_order_release);
}

void CudaHostWord::hold(cudaStream_t stream, std::uint64_t ticket) const {
  const int status = enqueue_wait(stream, ticket);
  if (status != CUDA_SUCCESS) {
    throw DeviceError{fmt::format("{} failed with the driver's error {}", kWait, status)};
  }
}

int CudaHostWord::enqueue_wait(cudaStream_t stream, std::uint64_t ticket) const {
  return reinterpret_cast<PFN_cuStreamWaitValue32_v11070>(wait_)(
      stream, reinterpret_cast<std::uintptr_t>(word_.at(0)), value_of(ticket),
      CU_STREAM_WAIT_VALUE_GEQ);
}

}  // namespace tessera::cuda
