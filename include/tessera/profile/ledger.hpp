#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device/device_use.hpp"
#include "tessera/memory/category.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

/// One line of a ledger.
struct LedgerRow {
  std::string name;
  std::int64_t bytes = 0;  ///< below 0 only in the row "unattributed"

  friend bool operator==(const LedgerRow&, const LedgerRow&) = default;
};

/// Compares what the trackers count in one process with what the system says that it holds. Ranks
/// that are threads share one process, and their counts are summed: the system cannot tell them
/// apart.
///
/// The system counts pages that have been touched, the trackers what has been asked for. So memory
/// that is counted and not yet used makes `unattributed` smaller; memory that is freed but kept by
/// the C library for its next use, thread stacks, and memory that no tracker was told of make it
/// larger. Memory taken before the run is `context`, and counts twice if a tracker registers it.
struct ProcessLedger {
  int first_rank = 0;              ///< the first of the process's ranks, which are consecutive
  ProcessStart start;              ///< what it held at the start, and its number of ranks
  CategoryBytes counted = {};      ///< live, by the trackers of those ranks; of ranks on CUDA only
                                   ///< what their host pools hold
  std::size_t resident_bytes = 0;  ///< as the system says

  /// The bytes that no other row holds; below 0 if those rows hold more than is resident.
  [[nodiscard]] std::int64_t unattributed() const noexcept;
  /// The rows "context" (the process before the run), "communicator start" (what MPI's start
  /// added), every category, and "unattributed". They sum to `resident_bytes`.
  [[nodiscard]] std::vector<LedgerRow> rows() const;
  /// The rows as lines with bytes and percentages, for people.
  [[nodiscard]] std::string text() const;
};

/// Compares what the trackers count on one device with what the device says is in use: what
/// ProcessLedger does, for memory that is not the processes'. Ranks that share a device are summed.
struct DeviceLedger {
  std::string device;          ///< "cuda:0", numbered as the process of its first rank sees it
  std::vector<int> ranks;      ///< the ranks that compute on it, ascending
  DeviceUse use;               ///< by all their processes
  CategoryBytes counted = {};  ///< live, by the trackers of those ranks, without their host pools

  /// The bytes that no other row holds: code of kernels, which CUDA loads at their first use, what
  /// streams and graphs take, and the program's own memory. Below 0 if those rows hold more than is
  /// in use.
  [[nodiscard]] std::int64_t unattributed() const noexcept;
  /// The rows "context", every category, "libraries" (what they took when they were started),
  /// "rounding" (of memory that the communicator uses directly), and "unattributed". They sum to
  /// `use.used_bytes`.
  [[nodiscard]] std::vector<LedgerRow> rows() const;
  /// The rows as lines with bytes and percentages, and whose use was counted, for people.
  [[nodiscard]] std::string text() const;
};

/// *Collective.* Returns the ledger of every device that the job computes on, in the order of their
/// first ranks, the same on all ranks. It is empty if ranks compute on CPUs, whose memory is their
/// processes'. Blocks until the work on this rank's compute stream is done.
///
/// Errors: ContractError for a simulated rank; DeviceError.
[[nodiscard]] std::vector<DeviceLedger> gather_device_ledgers(World& world);

/// *Collective.* Returns the ledger of every process of the job as it is now, in the order of their
/// first ranks, the same on all ranks. Blocks. Buffers that nobody has touched yet are not
/// resident: ask after a step or two.
///
/// Errors: ContractError for a simulated rank, which holds no memory; Error on every rank if one
///         rank's system does not tell what is resident.
[[nodiscard]] std::vector<ProcessLedger> gather_ledgers(World& world);

}  // namespace tessera
