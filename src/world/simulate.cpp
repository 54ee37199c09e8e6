#include "tessera/world/simulate.hpp"

#include <fmt/format.h>

#include "base/enumerator.hpp"
#include "comm/simulated/simulated_communicator.hpp"
#include "tessera/base/error.hpp"
#include "world/counting_guard.hpp"
#include "world/world_state.hpp"

namespace tessera {
namespace {

constexpr int kMostRanks = 1 << 20;

void check(const SimulatedRank& rank) {
  require_enumerator("the simulated device", rank.backend.device, DeviceKind::meta);
  require_enumerator("the simulated transport", rank.backend.comm, CommKind::nccl);
  if (rank.ranks < 1 || rank.ranks > kMostRanks) {
    throw ConfigError{
        fmt::format("a simulated job has 1 to {} ranks, not {}", kMostRanks, rank.ranks)};
  }
  if (rank.rank < 0 || rank.rank >= rank.ranks) {
    throw ConfigError{fmt::format("a job of {} ranks has no rank {}", rank.ranks, rank.rank)};
  }
  if (rank.backend.device == DeviceKind::meta) {
    throw ConfigError{
        "a simulated rank stands for one on cpu or cuda, not on meta; choose one of these"};
  }
  const bool cuda = rank.backend.device == DeviceKind::cuda;
  if (rank.backend.comm == (cuda ? CommKind::mpi : CommKind::nccl)) {
    throw ConfigError{fmt::format("ranks on {} cannot communicate through {}",
                                  to_string(rank.backend.device), to_string(rank.backend.comm))};
  }
}

}  // namespace

std::string_view to_string(CommKind kind) noexcept {
  switch (kind) {
    case CommKind::mpi:
      return "mpi";
    case CommKind::nccl:
      return "nccl";
    case CommKind::local:
      break;
  }
  return "local";
}

World world::WorldFactory::make_simulated(const SimulatedRank& rank, const WorldOptions& options) {
  auto log = options.log_work ? std::make_unique<trace::WorkLog>() : nullptr;
  auto device = make_meta_device(log.get());
  auto state = std::make_unique<world::WorldState>(
      rank.rank, rank.ranks, options, std::move(device), rank.backend.device, std::move(log));
  const auto make = [&](const char* stream) {
    return std::make_unique<comm::SimulatedCommunicator>(
        rank, *state->device, state->memory, comm::Instruments{state->recorder.get(), {}, stream},
        state->work_log.get());
  };
  state->gather = make("gather");
  state->reduce = make("reduce");
  make_streams(*state);
  return World{std::move(state)};
}

void simulate_rank(const SimulatedRank& rank, const std::function<void(World&)>& body,
                   const WorldOptions& options) {
  check(rank);
  validate(options);
  World world = world::WorldFactory::make_simulated(rank, options);
  const world::CountingGuard guard;
  body(world);
  world::WorldFactory::rethrow_mistake(world);
}

}  // namespace tessera
