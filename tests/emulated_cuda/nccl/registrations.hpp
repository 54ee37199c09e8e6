#pragma once

#include <cstddef>
#include <cstdint>

namespace emulated_nccl {

class Comm;

/// Tracks memory of ncclMemAlloc and its registrations with communicators of this process. Ends the
/// process if a program frees memory or a communicator in the wrong order.
///
/// Threads: any.

/// Whether the whole range is registered with `comm`.
[[nodiscard]] bool is_registered(const Comm* comm, const void* data, std::size_t bytes);
/// Records the CTA limits of a new communicator (INT_MIN: none). False if NCCL refuses them.
[[nodiscard]] bool take_limits(int min_ctas, int max_ctas);
/// Counts a call of `bytes` between ranks, by whether its buffers are registered.
void count_call(bool registered, std::size_t bytes);
/// Called when a communicator is destroyed: ends the process if buffers are still registered.
void check_none_registered(const Comm* comm);
/// Drops all registrations of an aborted communicator.
void forget_registered(const Comm* comm);

}  // namespace emulated_nccl
