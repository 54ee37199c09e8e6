#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/base/dtype.hpp"
#include "tessera/trace/work_log.hpp"

namespace tessera {

/// Links between ranks: level 0 joins those of a node, level 1 nodes, and so on.
struct LinkLevel {
  std::string name;
  /// That one block of this level holds, neighbours; 0: any number.
  int ranks = 0;
  /// One way, of one rank's own link, as large messages achieve it.
  double bytes_per_second = 0;
  /// From one rank to the next over this link, for each of the profile's protocols.
  std::vector<double> step_seconds;
};

/// A way of sending that trades bandwidth for latency; the fastest is taken each time.
struct LinkProtocol {
  std::string name;
  double bandwidth_share = 1;  ///< of the links' bytes a second
  double start_seconds = 0;    ///< of every collective
};

/// How ranks move data between them.
enum class CollectiveWay : std::uint8_t {
  ring,    ///< rings, and trees for all_reduce where they are faster: NCCL
  direct,  ///< ranks read each other's memory between meetings: `local` on a CPU
};

/// What one kernel took at one size.
struct KernelSample {
  trace::KernelWork work;
  double seconds = 0;         ///< while the other cores were idle
  double shared_seconds = 0;  ///< while all cores did the same; 0: as `seconds`
};

/// What a machine does in a second: what the time of a step is worked out from.
struct MachineProfile {
  static constexpr int kVersion = 1;

  std::string name;
  std::string source;  ///< where the figures are from
  /// That ranks share, one thread each; 0: every rank has a device of its own.
  int cores = 0;
  std::map<DType, double> flops_per_second;  ///< of an isolated large product
  double bytes_per_second = 0;               ///< of a device's memory, or as one core reaches it
  /// Between device and host; 0: their memory is the same.
  double host_bytes_per_second = 0;
  double kernel_seconds = 0;   ///< that every kernel takes on the device besides its work
  double enqueue_seconds = 0;  ///< of the host, for each thing that it enqueues
  /// Of a kernel's speed, that it has while collectives move data beside it.
  double speed_beside_collectives = 1;
  CollectiveWay way = CollectiveWay::ring;
  double reduce_bytes_per_second = 0;  ///< CollectiveWay::direct: of one rank's tensor
  std::vector<LinkProtocol> protocols;
  std::vector<LinkLevel> levels;
  std::vector<KernelSample> kernels;

  /// Throws ConfigError that says what is missing or makes no sense.
  void validate() const;
};

/// The profile that `json` holds, as docs/plan-time.md describes it. ConfigError, also for another
/// version and for keys that it does not know.
[[nodiscard]] MachineProfile parse_machine_profile(std::string_view json);
/// The inverse of parse_machine_profile.
[[nodiscard]] std::string machine_profile_json(const MachineProfile& profile);

/// Seconds of a kernel by itself.
struct KernelSeconds {
  double alone = 0;
  double shared = 0;    ///< while all cores do the like; as `alone` where none are shared
  bool memory = false;  ///< bytes, not FLOPs, say how long it takes
};

/// The roofline
///
///   max(flops / flops_per_second, bytes / bytes_per_second) + kernel_seconds
///
/// or, where there are samples of the kernel (same name and dtype), the roofline without
/// kernel_seconds times how much longer than theirs those took: the sample of the same sizes, or
/// the mean of the four nearest (of logarithms, by the squared distance of the logarithms of the
/// sizes). copy_in and copy_out go at host_bytes_per_second.
///
/// Errors: ConfigError for a dtype whose FLOPs a second the profile does not give.
[[nodiscard]] KernelSeconds kernel_seconds(const trace::KernelWork& work,
                                           const MachineProfile& profile);

/// Seconds of a collective by itself.
struct CollectiveSeconds {
  double latency = 0;
  double moving = 0;  ///< longer where others use the same links
  int level = 0;      ///< the slowest that it spans
};

/// Of one operation among `members`, ranks of the job. With N members and M bytes in the whole
/// tensor, in blocks of which level i has b_i (b_last = 1, and N in place of the level below 0):
///
///   ring    latency   start + sum over i of (b_below - b_i) step_i       all_reduce: the sum twice
///           moving    M (N-1)/N / B                                     all_reduce: twice that
///                     M / B for broadcast and reduce
///           B = share * min over the levels spanned of bytes_per_second_i * members in a block of
///           the level below (1 for level 0): all ranks of a node send to other nodes at once
///   tree    of all_reduce: latency start + 2 ((N/b_0 - 1) step_0 + log2(b_0) step_top),
///           moving 2 M / (0.9 B)
///   direct  latency   meetings (start + N step_0), 2 meetings, all_reduce 3
///           moving    M / bytes_per_second of what a rank copies, and M / reduce_bytes_per_second
///                     of what it adds
///
/// the fastest over protocols (and ring and tree): the model that NCCL chooses by itself
/// (src/graph/tuning.cc there). ConfigError if the members span more than the levels do.
[[nodiscard]] CollectiveSeconds collective_seconds(const trace::CollectiveWork& work,
                                                   const std::vector<int>& members,
                                                   const MachineProfile& profile);

}  // namespace tessera
