#pragma once

#include <cstddef>
#include <cstdint>

// Controls of the emulation. The emulated module exports them, and tests find them by name.
extern "C" {

/// The `nth` call (1: the next) of the API function `call` fails once with the CUDA error `error`.
/// Kernel errors (cudaErrorIllegalAddress, cudaErrorLaunchFailure) persist as in CUDA: every later
/// call fails with them until emulated_cuda_mend().
void emulated_cuda_fail(const char* call, int nth, int error);
void emulated_cuda_mend();

void emulated_cuda_set_seed(std::uint64_t seed);
/// Longest random delay before each task of a stream.
void emulated_cuda_set_delay_us(int most);
void emulated_cuda_set_device_bytes(std::size_t bytes);
/// Memory of each device that other processes hold.
void emulated_cuda_set_others_bytes(std::size_t bytes);
void emulated_cuda_set_devices(int count);
/// Threads that run host functions (cudaLaunchHostFunc): 1, or 0 for one per stream.
void emulated_cuda_set_callbacks(int threads);
/// Compute capability: 90 for 9.0.
void emulated_cuda_set_capability(int capability);
void emulated_cuda_set_multiprocessors(int count);

/// Whether device memory is protected from host threads: 0 on processors without protection keys.
int emulated_cuda_protects();
/// Calls of the API function `call` since the process began.
std::uint64_t emulated_cuda_calls(const char* call);

/// Copies between a device and pageable host memory since the process began.
std::uint64_t emulated_cuda_pageable_copies();

/// Counters of the double of NCCL since the process began.
struct EmulatedNcclCounts {
  std::uint64_t allocated;  ///< ncclMemAlloc
  std::uint64_t freed;
  std::uint64_t registered;  ///< buffers and windows, counted per communicator
  std::uint64_t windows;     ///< of these, symmetric windows
  std::uint64_t deregistered;
  std::uint64_t ended;         ///< ended by the abort of their communicator
  std::uint64_t direct_calls;  ///< collectives with only registered buffers
  std::uint64_t copied_calls;  ///< other collectives
  std::uint64_t copied_large;  ///< of these, larger than 256 bytes
  std::uint64_t limited;       ///< communicators with CTA limits
  int min_ctas;                ///< of the last of these; 0: NCCL's default
  int max_ctas;
};
void emulated_nccl_counts(EmulatedNcclCounts* counts);
/// Counters of the double of cuBLASLt since the process began.
struct EmulatedCublasLtCounts {
  std::uint64_t products;
  std::uint64_t uneven;  ///< with a size or stride that is no multiple of 8
  /// Sizes of the last uneven product: C is m x n, row-major, and k is summed over.
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  /// Products by the rank of their algorithm among the heuristic's choices: first, second, third.
  std::uint64_t by_place[3];
  std::uint64_t limited;  ///< products that may not use all multiprocessors
  int multiprocessors;    ///< that the last of them may use
};
void emulated_cublaslt_counts(EmulatedCublasLtCounts* counts);
/// Makes an algorithm of the double (8 words) add its splits in order of completion.
void emulated_cublaslt_let_race(std::uint64_t* algorithm);
/// Number of communicator splits that this process has begun.
std::uint64_t emulated_nccl_splits();
}
