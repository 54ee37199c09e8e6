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

/// One level of links between ranks: level 0 joins the ranks of a node, level 1 joins nodes, and so
/// on.
struct LinkLevel {
  std::string name;  ///< a name for people: "NVLink", "InfiniBand", ...
  /// The number of consecutive ranks in one block of this level; 0 stands for any number.
  int ranks = 0;
  /// The bandwidth of one rank's link, one way, that large messages reach.
  double bytes_per_second = 0;
  /// The latency from one rank to the next over this link, for each of the profile's protocols.
  std::vector<double> step_seconds;
};

/// A protocol that trades bandwidth for latency. Each collective uses the fastest.
struct LinkProtocol {
  std::string name;            ///< a name for people: "LL", "Simple", ...
  double bandwidth_share = 1;  ///< the part of the links' bytes per second that it reaches
  double start_seconds = 0;    ///< added to the latency of every collective
};

/// How collectives move data between ranks.
enum class CollectiveWay : std::uint8_t {
  ring,    ///< rings, and trees for all_reduce where they are faster: NCCL
  direct,  ///< ranks read each other's memory between barriers: `local` on a CPU
};

/// A measured time of one kernel at one size.
struct KernelSample {
  trace::KernelWork work;     ///< the work that was measured
  double seconds = 0;         ///< its time while the other cores were idle
  double shared_seconds = 0;  ///< its time while all cores did the same; 0 if that is `seconds`
};

/// The rates and latencies of a machine, from which step_time computes the time of a step.
struct MachineProfile {
  /// The version of the JSON format.
  static constexpr int kVersion = 1;

  std::string name;    ///< the machine, for people
  std::string source;  ///< where the figures come from
  /// The number of cores that the ranks share, one thread each; 0 if every rank has its own device.
  int cores = 0;
  std::map<DType, double> flops_per_second;  ///< rate of an isolated large product, by dtype
  /// The rate of kernels other than products and attention, which use no matrix units; 0: the rate
  /// of products.
  double vector_flops_per_second = 0;
  double bytes_per_second = 0;  ///< bandwidth of a device's memory, or what one core reaches of it
  /// The bandwidth between device and host; 0 if their memory is the same.
  double host_bytes_per_second = 0;
  double kernel_seconds = 0;   ///< overhead of every kernel on the device
  double enqueue_seconds = 0;  ///< time that the host takes to enqueue one entry
  /// The part of its speed, above 0 and up to 1, that a kernel keeps while collectives move data
  /// beside it.
  double speed_beside_collectives = 1;
  CollectiveWay way = CollectiveWay::ring;  ///< how collectives move data
  double reduce_bytes_per_second = 0;       ///< rate at which `direct` adds one rank's tensor
  std::vector<LinkProtocol> protocols;      ///< at least one if there are levels
  std::vector<LinkLevel> levels;      ///< innermost first; empty: only one rank can be planned
  std::vector<KernelSample> kernels;  ///< measured kernels; may be empty

  /// Throws ConfigError that says what is missing or invalid, if anything is.
  void validate() const;
};

/// Parses a profile in the format of docs/machine-profiles.md. Throws ConfigError if `json` is no
/// profile, has another version, or has an unknown key.
[[nodiscard]] MachineProfile parse_machine_profile(std::string_view json);
/// Returns `profile` in the format that parse_machine_profile reads.
[[nodiscard]] std::string machine_profile_json(const MachineProfile& profile);

/// The profile of a device, and the figures that were not measured.
struct MeasuredDevice {
  MachineProfile profile;  ///< the profile
  /// The figures that are missing, so that plans leave out or refuse what needs them. Each says
  /// what measures it.
  std::vector<std::string> not_measured;
};

/// Makes a profile from the samples of a device's benchmark, in the format of
/// docs/machine-profiles.md: times of products, attention and memory-bound kernels, the cost of a
/// launch, copies, and collectives between the ranks of a node. `json` is a document of the
/// benchmark, or one whose `parts` have such samples. Throws ConfigError if it is neither, or if
/// kernels are missing; it names them and what measures them.
[[nodiscard]] MeasuredDevice profile_of_samples(std::string_view json);

/// The time of one kernel when no collective runs beside it.
struct KernelSeconds {
  double alone = 0;     ///< seconds while the other cores are idle
  double shared = 0;    ///< seconds while all cores do the same; `alone` if that was not measured
  bool memory = false;  ///< whether its bytes bound its time, rather than its FLOPs
};

/// Returns the time of `work` by the roofline
///
///     max(flops / flops_per_second, bytes / bytes_per_second) + kernel_seconds
///
/// If the profile has samples of the kernel, the time is instead the roofline without
/// kernel_seconds, times the ratio of the samples' times to their own rooflines. Samples have the
/// same dtype, and the same name or else the longest prefix of it: "matmul_nn" for
/// "matmul_nn_bias". The ratio comes from the sample of the same sizes. Without one it is the
/// geometric mean over the four nearest samples, weighted by the inverse squared distance between
/// the logarithms of the sizes. copy_in and copy_out use host_bytes_per_second unless it is 0. fp64
/// counts as fp32. Throws ConfigError for a dtype whose FLOPs per second are not in the profile.
[[nodiscard]] KernelSeconds kernel_seconds(const trace::KernelWork& work,
                                           const MachineProfile& profile);

/// The time of a collective when nothing else uses its links.
struct CollectiveSeconds {
  double latency = 0;  ///< seconds before data moves
  double moving = 0;   ///< seconds in which data moves; longer while others use the same links
  int level = 0;       ///< the outermost level that it spans
};

/// Returns the time of one operation among `members`, ascending ranks of the job; 0 for a single
/// member. N members hold a tensor of M bytes in all, and are in b_i blocks of level i (the last
/// level has one block; below level 0 there are N):
///
///     ring    latency   start + sum over i of (b_below - b_i) step_i     all_reduce: the sum twice
///             moving    M (N-1)/N / B                                    all_reduce: twice that
///                       M / B for broadcast and reduce
///             B = share * min over the levels spanned of bytes_per_second_i * members in a block
///             of the level below (the fewest; 1 for level 0): all ranks of a node send at once
///     tree    latency   start + 2 ((N/b_0 - 1) step_0 + ceil(log2(b_0)) step_top)
///             moving    2 M / (0.9 B); for all_reduce only
///     direct  latency   barriers of (start + N step_0) each: 2, or 3 for all_reduce
///             moving    M / bytes_per_second for what a rank copies, and
///                       M / reduce_bytes_per_second for what it adds, with the figures of the
///                       first level and protocol
///
/// CollectiveWay::ring takes the fastest protocol, by ring or tree: NCCL chooses by the same model
/// (its src/graph/tuning.cc). Throws ConfigError if the members span more than the levels.
[[nodiscard]] CollectiveSeconds collective_seconds(const trace::CollectiveWork& work,
                                                   const std::vector<int>& members,
                                                   const MachineProfile& profile);

}  // namespace tessera
