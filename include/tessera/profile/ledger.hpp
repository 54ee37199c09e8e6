#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/device/device_use.hpp"
#include "tessera/memory/category.hpp"
#include "tessera/world/world.hpp"

namespace tessera {

struct LedgerRow {
  std::string name;
  std::int64_t bytes = 0;  ///< below 0 only in the row "unattributed"

  friend bool operator==(const LedgerRow&, const LedgerRow&) = default;
};

/// What one process holds beside what the system says that it does. Ranks that are threads share
/// one process, and their counts are summed: the system cannot tell them apart.
///
/// The system counts pages that have been touched, the trackers what has been asked for. So what is
/// counted and not yet used makes `unattributed` smaller, and what is freed and kept by the C
/// library for its next use, thread stacks and memory that no tracker was told of make it larger.
/// Memory that was taken before the run is `context`: registered with a tracker it counts twice.
struct ProcessLedger {
  int first_rank = 0;
  ProcessStart start;              ///< `ranks`: that this process has, from `first_rank` on
  CategoryBytes counted = {};      ///< live, by the trackers of those ranks; on CUDA devices that
                                   ///< of their host pools alone
  std::size_t resident_bytes = 0;  ///< as the system says

  /// What no other row holds. Below 0 if they hold more than is resident.
  [[nodiscard]] std::int64_t unattributed() const noexcept;
  /// "context" (the process before the run), "communicator start" (what MPI's start added), every
  /// category, and "unattributed". They sum to `resident_bytes`.
  [[nodiscard]] std::vector<LedgerRow> rows() const;
  /// The rows as lines with bytes and parts, for people.
  [[nodiscard]] std::string text() const;
};

/// What the ranks of a job hold on one device beside what the device says is in use: as
/// ProcessLedger, for memory that is not the processes'. Ranks that share a device are summed.
struct DeviceLedger {
  std::string device;          ///< "cuda:0", as its first rank's process counts them
  std::vector<int> ranks;      ///< that are on it
  DeviceUse use;               ///< of all their processes
  CategoryBytes counted = {};  ///< live, by the trackers of those ranks: no host pool

  /// What no other row holds: code of kernels, which CUDA loads at their first use, what streams
  /// and graphs take, and memory of the program's own. Below 0 if the rows hold more than is used.
  [[nodiscard]] std::int64_t unattributed() const noexcept;
  /// "context", every category, "libraries" (what they took when they were started), "rounding" (of
  /// memory that the communicator uses directly), and "unattributed". They sum to `use.used_bytes`.
  [[nodiscard]] std::vector<LedgerRow> rows() const;
  /// The rows as lines with bytes and parts, and whose use was counted, for people.
  [[nodiscard]] std::string text() const;
};

/// *Collective.* The ledger of every device that the job computes on, by its first rank, the same
/// on all ranks; none of ranks on CPUs, whose memory is their processes'. Blocks until what this
/// rank has enqueued is done.
///
/// Errors: ContractError for a simulated rank; DeviceError.
[[nodiscard]] std::vector<DeviceLedger> gather_device_ledgers(World& world);

/// *Collective.* The ledger of every process of the job as it is now, by rank, the same on all
/// ranks. Blocks. Buffers that nobody has touched yet are not resident: ask after a step or two.
///
/// Errors: ContractError for a simulated rank, which holds no memory; Error on every rank if the
///         system of one does not tell what is resident.
[[nodiscard]] std::vector<ProcessLedger> gather_ledgers(World& world);

}  // namespace tessera
