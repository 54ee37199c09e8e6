#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/matmul/product_choices.hpp"
#include "kernels/table.hpp"
#include "tessera/trace/work_log.hpp"
#include "tessera/world/simulate.hpp"
#include "tessera/world/world.hpp"
#include "world/world_access.hpp"
#include "world/world_life.hpp"

namespace tessera::comm {
class TcpControlPlane;
class RankNames;
class LocalRanks;
class MpiProcess;
}  // namespace tessera::comm

namespace tessera::world {

/// A communicator that was split from another of the rank's.
struct SplitChannel {
  const Communicator* whole;  ///< kept by the world too, so its address stays unique
  RankGroup group;
  std::unique_ptr<Communicator> communicator;
  std::string name;    ///< empty if it is on the stream of `whole`
  OwnedStream stream;  ///< its own, if it has a name
};

/// A stream beside computation and collectives, made at its first use.
struct SideStream {
  // When the stream's current work began, while it is watched.
  std::int64_t begin_ns = 0;
  std::uint64_t done = 0;
  OwnedStream stream;
};

/// In order of construction: streams come last, so that they are drained before what they use is
/// destroyed.
struct WorldState {
  /// On `device_`, with the kernels of devices of `kind_`: the device's own kind, or the one it
  /// stands for.
  WorldState(int rank_, int size_, const WorldOptions& options_, std::unique_ptr<Device> device_,
             DeviceKind kind_, std::unique_ptr<trace::WorkLog> work_log_ = nullptr);

  int rank;
  int size;
  DeviceKind kind;  // the device's own, or what it stands for
  WorldOptions options;
  ProcessStart process;
  int host_threads;  // threads that a HostWork's kernels use
  // Exceptions in flight when the rank started: a higher count means that it is unwinding.
  int uncaught = std::uncaught_exceptions();
  std::unique_ptr<trace::Recorder> recorder;
  std::unique_ptr<trace::WorkLog> work_log;
  // Shared with the buffers that outlive the world.
  std::shared_ptr<MemoryTracker> counted;
  std::shared_ptr<MemoryTracker> host_counted;
  MemoryTracker& memory;
  MemoryTracker& host_memory;
  std::shared_ptr<Device> device;
  const kernels::Table& kernels;
  std::optional<kernels::ProductChoices> products;
  Buffer kernel_workspace;           // lent to the compute stream
  comm::RankNames* names = nullptr;  // names of the control plane, which the communicators keep
  std::unique_ptr<Communicator> gather;
  std::unique_ptr<Communicator> reduce;
  std::vector<SplitChannel> splits;  // each after the channel it was split from
  std::unique_ptr<WorkGraph> graph;  // made at its first use
  bool in_graph = false;
  OwnedStream compute_stream;
  OwnedStream gather_stream;
  OwnedStream reduce_stream;
  std::unique_ptr<Device> host_device;  // set if `device` is not the host's processor
  OwnedStream host_caller;              // stream on which the kernels of a HostWork run
  std::array<SideStream, 4> copies;     // by CopyKind
  SideStream update;                    // for what the host pool keeps between updates
  SideStream host;
  SideStream host_copies;  // copies within the host pool
  std::shared_ptr<WorldLife> life = std::make_shared<WorldLife>();

  /// Whether it lives until the world ends.
  [[nodiscard]] bool keeps(const Communicator& communicator) const noexcept;
  [[nodiscard]] std::array<SideStream*, 7> side_streams() noexcept {
    return {&copies[0], &copies[1], &copies[2], &copies[3], &update, &host, &host_copies};
  }
};

/// Makes worlds and ends them in order. One function for each kind of communicator.
class WorldFactory {
 public:
  WorldFactory() = delete;
  /// The device of a rank that is a thread (`ranks` of them in this process) or its own process;
  /// `local_rank` is its number on this machine.
  [[nodiscard]] static std::unique_ptr<Device> make_device(const WorldOptions& options,
                                                           int local_rank);
  /// With a world's channels, in the order of their numbers.
  [[nodiscard]] static std::shared_ptr<comm::LocalRanks> make_local_ranks(
      int ranks, const WorldOptions& options);
  [[nodiscard]] static World make_local(std::shared_ptr<comm::LocalRanks> ranks, int rank,
                                        const WorldOptions& options, const ProcessStart& process);
  [[nodiscard]] static World make_mpi(comm::MpiProcess& mpi,
                                      const std::shared_ptr<comm::TcpControlPlane>& control,
                                      const WorldOptions& options, const ProcessStart& process);
  /// *Collective.*
  [[nodiscard]] static World make_nccl(const std::shared_ptr<comm::TcpControlPlane>& control,
                                       int ordinal, const WorldOptions& options,
                                       const ProcessStart& process);
  [[nodiscard]] static World make_simulated(const SimulatedRank& rank, const WorldOptions& options);
  /// Throws a mistake found by a destructor, waits for the rank's submitted work and throws the
  /// streams' errors: the end of a body that returned.
  static void finish(World& world);
  /// Throws a mistake found by a destructor, if there is one.
  static void rethrow_mistake(const World& world);

 private:
  static int choose_products(WorldState& state);
  static void make_streams(WorldState& state);
};

}  // namespace tessera::world
