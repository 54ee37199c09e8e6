#include <map>
#include <mutex>
#include <string>

#include "emulated_cuda/access.hpp"
#include "emulated_cuda/api.hpp"
#include "emulated_cuda/controls.hpp"
#include "emulated_cuda/misuse.hpp"
#include "emulated_cuda/settings.hpp"

namespace emulated_cuda {
namespace {

struct Planned {
  int calls_left;
  cudaError_t error;
};

struct Failures {
  std::mutex mutex;
  std::map<std::string, Planned> planned;
  std::map<std::string, std::uint64_t> calls;
  cudaError_t sticky = cudaSuccess;
};

Failures& failures() {
  static auto* const all = new Failures;
  return *all;
}

bool stays(cudaError_t error) {
  return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure ||
         error == cudaErrorAssert || error == cudaErrorECCUncorrectable;
}

}  // namespace

cudaError_t failure_of(const char* call) {
  Failures& all = failures();
  const std::scoped_lock lock{all.mutex};
  ++all.calls[call];
  if (all.sticky != cudaSuccess) { return all.sticky; }
  const auto found = all.planned.find(call);
  if (found == all.planned.end() || --found->second.calls_left > 0) { return cudaSuccess; }
  const cudaError_t error = found->second.error;
  all.planned.erase(found);
  if (stays(error)) { all.sticky = error; }
  return error;
}

}  // namespace emulated_cuda

using emulated_cuda::failures;

void emulated_cuda_fail(const char* call, int nth, int error) {
  const std::scoped_lock lock{failures().mutex};
  failures().planned[call] = {nth, static_cast<cudaError_t>(error)};
}

void emulated_cuda_mend() {
  const std::scoped_lock lock{failures().mutex};
  failures().planned.clear();
  failures().sticky = cudaSuccess;
}

void emulated_cuda_set_seed(std::uint64_t seed) {
  emulated_cuda::settings().seed = seed;
}

void emulated_cuda_set_delay_us(int most) {
  emulated_cuda::settings().most_delay_us = most;
}

void emulated_cuda_set_device_bytes(std::size_t bytes) {
  emulated_cuda::settings().device_bytes = bytes;
}

void emulated_cuda_set_others_bytes(std::size_t bytes) {
  emulated_cuda::settings().others_bytes = bytes;
}

void emulated_cuda_set_callbacks(int threads) {
  emulated_cuda::settings().callbacks = threads;
}

void emulated_cuda_set_devices(int count) {
  if (count > emulated_cuda::kMostDevices) { emulated_cuda::misuse("too many devices"); }
  emulated_cuda::settings().devices = count;
}

void emulated_cuda_set_capability(int capability) {
  emulated_cuda::settings().capability = capability;
}

void emulated_cuda_set_multiprocessors(int count) {
  emulated_cuda::settings().multiprocessors = count;
}

int emulated_cuda_protects() {
  return emulated_cuda::protects() ? 1 : 0;
}

std::uint64_t emulated_cuda_calls(const char* call) {
  const std::scoped_lock lock{failures().mutex};
  return failures().calls[call];
}
