#pragma once

#include <cstddef>
#include <cstdint>

// What tests ask of the emulation: exported by the emulated module, where they are found by name.
extern "C" {

/// The `nth` call (1: the next) of the API function `call` fails with the CUDA error `error`, once.
/// Errors of kernels (cudaErrorIllegalAddress, cudaErrorLaunchFailure) stay, as CUDA's do: every
/// later call fails with them, until emulated_cuda_mend().
void emulated_cuda_fail(const char* call, int nth, int error);
void emulated_cuda_mend();

void emulated_cuda_set_seed(std::uint64_t seed);
/// Before every task of a stream, up to as much.
void emulated_cuda_set_delay_us(int most);
void emulated_cuda_set_device_bytes(std::size_t bytes);
/// What other processes hold of each device.
void emulated_cuda_set_others_bytes(std::size_t bytes);
void emulated_cuda_set_devices(int count);
/// How many threads run functions of the host (cudaLaunchHostFunc): 1, or 0 for one a stream.
void emulated_cuda_set_callbacks(int threads);
/// Compute capability: 90 for 9.0.
void emulated_cuda_set_capability(int capability);
void emulated_cuda_set_multiprocessors(int count);

/// Whether host threads are kept from device memory: 0 on processors that have no keys for it.
int emulated_cuda_protects();
/// Calls of the API function `call` since the process began.
std::uint64_t emulated_cuda_calls(const char* call);

/// Copies between a device and memory of the host that is not page-locked, since the process began.
std::uint64_t emulated_cuda_pageable_copies();

/// What the double of NCCL has been asked for since the process began.
struct EmulatedNcclCounts {
  std::uint64_t allocated;  ///< ncclMemAlloc
  std::uint64_t freed;
  std::uint64_t registered;  ///< buffers and windows, with a communicator each
  std::uint64_t windows;     ///< of these, symmetric windows
  std::uint64_t deregistered;
  std::uint64_t ended;         ///< by the abort of their communicator
  std::uint64_t direct_calls;  ///< of collectives, all of whose buffers were registered
  std::uint64_t copied_calls;  ///< of others
  std::uint64_t copied_large;  ///< of these, of more than 256 bytes
  std::uint64_t limited;       ///< communicators with limits of their CTAs
  int min_ctas;                ///< of the last of these; 0: left to NCCL
  int max_ctas;
};
void emulated_nccl_counts(EmulatedNcclCounts* counts);
/// What the double of cuBLASLt has been asked for since the process began.
struct EmulatedCublasLtCounts {
  std::uint64_t products;
  std::uint64_t uneven;  ///< of which a size, or a stride, is no multiple of 8
  /// Sizes of the last uneven product: C is m x n, row-major, and k is summed over.
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  /// Products by the rank of their algorithm among the heuristic's choices: first, second, third.
  std::uint64_t by_place[3];
};
void emulated_cublaslt_counts(EmulatedCublasLtCounts* counts);
/// How many splits of the process's communicators have begun.
std::uint64_t emulated_nccl_splits();
}
