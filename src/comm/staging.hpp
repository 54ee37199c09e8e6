#pragma once

#include <cstddef>

#include "tessera/comm/backend.hpp"

namespace tessera::comm {

/// Bytes of scratch memory of an MPI workspace in a job of `ranks` ranks: two blocks for every
/// peer, 8 MiB at most up to 1,024 ranks. Zero for one rank.
[[nodiscard]] std::size_t mpi_scratch_bytes(int ranks) noexcept;
/// Bytes that one rank sends another at a time over MPI where the receiver adds, in a group of
/// `ranks` (all of the job, or some) with that much scratch memory: equal on all of them.
[[nodiscard]] std::size_t mpi_reduce_block_bytes(std::size_t scratch_bytes, int ranks) noexcept;

/// The memory that communicators of `kind` hold in Category::communicator: a world has two
/// communicators, and those split from one share its memory. Zero for NCCL, whose own memory
/// depends on the machine and is only measured.
[[nodiscard]] std::size_t staging_bytes(CommKind kind, int ranks) noexcept;

}  // namespace tessera::comm
