#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated_nccl {

class Comm;

/// Memory of ncclMemAlloc, and which of it is registered with which communicators of this process:
/// ends the process where a program leaves something behind that NCCL, or the memory, would trip
/// on.
///
/// Threads: any.

/// Whether all of it is registered with `comm`.
[[nodiscard]] bool is_registered(const Comm* comm, const void* data, std::size_t bytes);
/// A communicator is made with these limits, INT_MIN where there is none. False: NCCL refuses them.
[[nodiscard]] bool take_limits(int min_ctas, int max_ctas);
/// A call of `bytes` between ranks was made with registered buffers, or with others.
void count_call(bool registered, std::size_t bytes);
/// The communicator is destroyed: nothing may be registered with it any more.
void check_none_registered(const Comm* comm);
/// After an abort nothing is registered any more.
void forget_registered(const Comm* comm);

}  // namespace emulated_nccl
