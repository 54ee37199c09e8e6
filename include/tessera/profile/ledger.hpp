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
  std::string name;        ///< the row: a category, "context", "unattributed", ...
  std::int64_t bytes = 0;  ///< negative only in the row "unattributed"

  friend bool operator==(const LedgerRow&, const LedgerRow&) = default;
};

/// The memory of one process: the bytes that trackers count, and the resident bytes that the system
/// counts. Ranks that are threads share one process, and their counts are summed.
///
/// The system counts pages that have been touched, trackers count bytes that were requested. Memory
/// that is counted and not yet touched therefore makes `unattributed` smaller. Freed memory that
/// the C library keeps, thread stacks, and memory that no tracker counts make it larger. Memory
/// taken before the run is `context`, and counts twice if a tracker registers it.
struct ProcessLedger {
  int first_rank = 0;              ///< the first of the process's ranks, which are consecutive
  ProcessStart start;              ///< the memory before the run, and the number of ranks
  CategoryBytes counted = {};      ///< live bytes of those ranks' trackers; for ranks on CUDA only
                                   ///< their host pools
  std::size_t resident_bytes = 0;  ///< resident bytes of the process, by the system

  /// Returns the bytes that no other row has; negative if the other rows exceed the resident bytes.
  [[nodiscard]] std::int64_t unattributed() const noexcept;
  /// Returns the rows "context" (the process before the run), "communicator start" (what the start
  /// of MPI added), every category, and "unattributed". They sum to `resident_bytes`.
  [[nodiscard]] std::vector<LedgerRow> rows() const;
  /// Returns the rows as lines with bytes and percentages, for people.
  [[nodiscard]] std::string text() const;
};

/// The memory of one device: the bytes that trackers count, and the bytes that the device reports
/// as in use. Ranks that share a device are summed.
struct DeviceLedger {
  std::string device;          ///< "cuda:0", as the process of its first rank numbers devices
  std::vector<int> ranks;      ///< the ranks that compute on it, ascending
  DeviceUse use;               ///< the memory in use by all their processes
  CategoryBytes counted = {};  ///< live bytes of those ranks' trackers, without their host pools

  /// Returns the bytes that no other row has: kernel code, which CUDA loads at first use, streams
  /// and graphs, and the program's own memory. Negative if the other rows exceed the bytes in use.
  [[nodiscard]] std::int64_t unattributed() const noexcept;
  /// Returns the rows "context", every category, "libraries" (what they took at their start),
  /// "rounding" (of memory that the communicator uses directly), and "unattributed". They sum to
  /// `use.used_bytes`.
  [[nodiscard]] std::vector<LedgerRow> rows() const;
  /// Returns the rows as lines with bytes and percentages, and whose use was counted, for people.
  [[nodiscard]] std::string text() const;
};

/// *Collective.* Returns the ledger of every device that the job computes on, in the order of their
/// first ranks, the same on all ranks. It is empty if ranks compute on CPUs: see gather_ledgers.
/// Blocks until the work on this rank's compute stream is done. Throws ContractError for a
/// simulated rank, and DeviceError if CUDA fails.
[[nodiscard]] std::vector<DeviceLedger> gather_device_ledgers(World& world);

/// *Collective.* Returns the current ledger of every process of the job, in the order of their
/// first ranks, the same on all ranks. Blocks. Buffers that have not been touched yet are not
/// resident: call it after one or two steps.
///
/// Errors: ContractError for a simulated rank, which holds no memory; Error on every rank if the
///         system of one rank does not report resident memory.
[[nodiscard]] std::vector<ProcessLedger> gather_ledgers(World& world);

}  // namespace tessera
