#pragma once

#include <cstddef>

#include "tessera/comm/backend.hpp"

namespace tessera {

/// Bytes of an MPI workspace's scratch memory in a job of so many ranks: two blocks of every peer,
/// 8 MiB at most up to 1,024 ranks. None for one rank.
[[nodiscard]] std::size_t mpi_scratch_bytes(int ranks) noexcept;
/// Bytes that one rank sends another at a time over MPI where the receiver adds, in a group of
/// `ranks` (all of the job, or some) that have that scratch memory: the same on all of them.
[[nodiscard]] std::size_t mpi_reduce_block_bytes(std::size_t scratch_bytes, int ranks) noexcept;

/// What a communicator of `kind` holds for its own use, of Category::communicator: a world has two
/// communicators, and what is split from one uses what that holds. Nothing for NCCL, whose own
/// memory depends on the machine and is only measured.
[[nodiscard]] std::size_t staging_bytes(CommKind kind, int ranks) noexcept;

}  // namespace tessera
