#pragma once

#include <cstddef>

#include "tessera/comm/simulate.hpp"

namespace tessera {

/// Bytes that one rank sends another at a time over MPI where the receiver adds: the same on all
/// ranks.
[[nodiscard]] std::size_t mpi_reduce_block_bytes(int ranks) noexcept;
/// Bytes of an MPI workspace's scratch memory: two blocks of every peer, 8 MiB at most up to 1,024
/// ranks. None for one rank.
[[nodiscard]] std::size_t mpi_scratch_bytes(int ranks) noexcept;

/// What a communicator of `kind` holds for its own use, of Category::communicator: a world has two
/// communicators. Nothing for NCCL, whose own memory depends on the machine and is only measured.
[[nodiscard]] std::size_t staging_bytes(CommKind kind, int ranks) noexcept;

}  // namespace tessera
