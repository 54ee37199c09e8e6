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

/// Links between ranks: level 0 joins the ranks of a node, level 1 joins nodes, and so on.
struct LinkLevel {
  std::string name;
  /// Ranks in one block of this level, which are consecutive; 0 stands for any number.
  int ranks = 0;
  /// The rate of one rank's own link, one way, that large messages achieve.
  double bytes_per_second = 0;
  /// The time from one rank to the next over this link, for each of the profile's protocols.
  std::vector<double> step_seconds;
};

/// A way of sending that trades bandwidth for latency. The fastest is taken each time.
struct LinkProtocol {
  std::string name;
  double bandwidth_share = 1;  ///< the part of the links' bytes per second that it reaches
  double start_seconds = 0;    ///< added to the latency of every collective
};

/// How ranks move data between each other.
enum class CollectiveWay : std::uint8_t {
  ring,    ///< rings, and trees for all_reduce where they are faster: NCCL
  direct,  ///< ranks read each other's memory between meetings: `local` on a CPU
};

/// What one kernel took at one size.
struct KernelSample {
  trace::KernelWork work;     ///< what it did
  double seconds = 0;         ///< its time while the other cores were idle
  double shared_seconds = 0;  ///< its time while all cores did the same; 0 if that is `seconds`
};

/// The rates and latencies of a machine, from which the time of a step is worked out.
struct MachineProfile {
  /// The version of the JSON format.
  static constexpr int kVersion = 1;

  std::string name;
  std::string source;  ///< where the figures are from
  /// Cores that the ranks share, one thread each; 0 if every rank has a device of its own.
  int cores = 0;
  std::map<DType, double> flops_per_second;  ///< of an isolated large product, by dtype
  /// Of kernels that are no product or attention, which use no matrix units; 0: as products.
  double vector_flops_per_second = 0;
  double bytes_per_second = 0;  ///< of a device's memory, or as one core reaches it
  /// The rate between device and host; 0 if their memory is the same.
  double host_bytes_per_second = 0;
  double kernel_seconds = 0;   ///< what every kernel takes on the device besides its work
  double enqueue_seconds = 0;  ///< what the host takes for each thing that it enqueues
  /// The part of its speed, above 0 and up to 1, that a kernel keeps while collectives move data
  /// beside it.
  double speed_beside_collectives = 1;
  CollectiveWay way = CollectiveWay::ring;
  double reduce_bytes_per_second = 0;   ///< at which CollectiveWay::direct adds one rank's tensor
  std::vector<LinkProtocol> protocols;  ///< at least one where there are levels
  std::vector<LinkLevel> levels;        ///< the innermost first; none: one rank alone is planned
  std::vector<KernelSample> kernels;    ///< measured kernels, if any

  /// Throws a ConfigError that says what is missing or makes no sense, if anything does.
  void validate() const;
};

/// Reads the profile that `json` holds in the format of docs/machine-profiles.md. ConfigError if it
/// holds none, if the version is another one, or if a key is not known.
[[nodiscard]] MachineProfile parse_machine_profile(std::string_view json);
/// Writes `profile` in the format that parse_machine_profile reads.
[[nodiscard]] std::string machine_profile_json(const MachineProfile& profile);

/// The profile of a device, and what of it was not measured.
struct MeasuredDevice {
  MachineProfile profile;
  /// What plans then leave out or refuse, each with the part of scripts/gpu_check.sh that measures
  /// it.
  std::vector<std::string> not_measured;
};

/// Makes a profile of `json`, the figures (gpu.json) of scripts/gpu_check.sh: rates of products,
/// attention and kernels that memory bounds, from part `kernels`; links between the ranks of a
/// node, from part `multi`; the cost of a launch.
///
/// Errors: ConfigError if the script did not write `json`, or if figures of kernels are missing. It
///         names them and the part that measures them.
[[nodiscard]] MeasuredDevice profile_of_gpu_check(std::string_view json);

/// The time of one kernel when no collective runs beside it.
struct KernelSeconds {
  double alone = 0;     ///< seconds while the other cores are idle
  double shared = 0;    ///< seconds while all cores do the same; `alone` if nothing says otherwise
  bool memory = false;  ///< whether its bytes, and not its FLOPs, bound it
};

/// The time of `work` by the roofline
///
///   max(flops / flops_per_second, bytes / bytes_per_second) + kernel_seconds
///
/// or, if the profile has samples of the kernel (same dtype, same name or else the longest that its
/// name begins with: "matmul_nn" for "matmul_nn_bias"), by the roofline without kernel_seconds,
/// times the ratio of the samples' times to their own rooflines. The ratio is that of the sample of
/// the same sizes, or else the geometric mean over the four nearest, weighted by the inverse
/// squared distance between the logarithms of the sizes. copy_in and copy_out go at
/// host_bytes_per_second, if it is not 0. fp64 is taken for fp32.
///
/// Errors: ConfigError for a dtype whose FLOPs per second are not in the profile.
[[nodiscard]] KernelSeconds kernel_seconds(const trace::KernelWork& work,
                                           const MachineProfile& profile);

/// The time of a collective when nothing else uses its links.
struct CollectiveSeconds {
  double latency = 0;  ///< seconds before data moves
  double moving = 0;   ///< seconds in which data moves; longer while others use the same links
  int level = 0;       ///< the outermost level that it spans
};

/// The time of one operation among `members`, ascending ranks of the job; 0 for a single member. N
/// members hold a tensor of M bytes in all, and lie in b_i blocks of level i (the last level has
/// one block; below level 0 there are N):
///
///   ring    latency   start + sum over i of (b_below - b_i) step_i       all_reduce: the sum twice
///           moving    M (N-1)/N / B                                     all_reduce: twice that
///                     M / B for broadcast and reduce
///           B = share * min over the levels spanned of bytes_per_second_i * members in a block of
///           the level below (the fewest; 1 for level 0): all ranks of a node send at once
///   tree    latency   start + 2 ((N/b_0 - 1) step_0 + ceil(log2(b_0)) step_top)
///           moving    2 M / (0.9 B); for all_reduce only
///   direct  latency   meetings of (start + N step_0) each: 2, or 3 for all_reduce
///           moving    M / bytes_per_second for what a rank copies, and M / reduce_bytes_per_second
///                     for what it adds, with the figures of the first level and protocol
///
/// `ring` takes the fastest over the protocols, and over ring and tree: it is the model by which
/// NCCL chooses (src/graph/tuning.cc there). ConfigError if the members span more than the levels.
[[nodiscard]] CollectiveSeconds collective_seconds(const trace::CollectiveWork& work,
                                                   const std::vector<int>& members,
                                                   const MachineProfile& profile);

}  // namespace tessera
