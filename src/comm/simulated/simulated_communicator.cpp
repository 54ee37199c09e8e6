#include "comm/simulated/simulated_communicator.hpp"

#include <fmt/format.h>

#include "comm/staging.hpp"

namespace tessera {

SimulatedCommunicator::SimulatedCommunicator(const SimulatedRank& rank, Device& device,
                                             MemoryTracker& memory, Instruments instruments)
    : Communicator{rank.rank, rank.ranks},
      staging_{std::make_shared<Buffer>(device, memory, Category::communicator,
                                        staging_bytes(rank.backend.comm, rank.ranks),
                                        fmt::format("{} staging", to_string(rank.backend.comm)))},
      instruments_{instruments} {}

SimulatedCommunicator::SimulatedCommunicator(const RankGroup& group,
                                             std::shared_ptr<const Buffer> staging,
                                             Instruments instruments)
    : Communicator{group.rank, static_cast<int>(group.members.size()), group.members},
      staging_{std::move(staging)},
      instruments_{instruments} {}

void SimulatedCommunicator::do_submit(Batch batch, Stream /*stream*/) {
  record_collectives(instruments_, batch, rank(), size(), trace::now_ns());
}

std::vector<std::string> SimulatedCommunicator::do_exchange(std::string message) {
  return std::vector<std::string>(static_cast<std::size_t>(size()), message);
}

std::unique_ptr<Communicator> SimulatedCommunicator::do_split(const RankGroup& group) {
  return std::make_unique<SimulatedCommunicator>(group, staging_,
                                                 instruments_.of_split(next_split_++));
}

}  // namespace tessera
