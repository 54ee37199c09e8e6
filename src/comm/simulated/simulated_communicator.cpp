#include "comm/simulated/simulated_communicator.hpp"

#include <fmt/format.h>

#include <numeric>

#include "comm/staging.hpp"
#include "device/stream_state.hpp"

namespace tessera::comm {

std::shared_ptr<const Buffer> SimulatedStaging::take() const {
  const CommKind kind = rank.backend.comm;
  return std::make_shared<Buffer>(device, memory, Category::communicator,
                                  staging_bytes(kind, rank.ranks),
                                  fmt::format("{} staging", to_string(kind)));
}

SimulatedCommunicator::SimulatedCommunicator(const SimulatedRank& rank, Device& device,
                                             MemoryTracker& memory, Instruments instruments,
                                             trace::WorkLog* log)
    : Communicator{rank.rank, rank.ranks},
      kind_{rank, device, memory},
      staging_{kind_.take()},
      instruments_{instruments},
      log_{log} {
  if (log_ == nullptr) { return; }
  std::vector<int> all(static_cast<std::size_t>(rank.ranks));
  std::iota(all.begin(), all.end(), 0);
  log_group_ = log_->add_group(std::move(all));
}

SimulatedCommunicator::SimulatedCommunicator(const RankGroup& group,
                                             const SimulatedCommunicator& whole,
                                             Instruments instruments)
    : Communicator{group.rank, static_cast<int>(group.members.size()), group.members},
      kind_{whole.kind_},
      staging_{whole.staging_},
      instruments_{instruments},
      log_{whole.log_},
      log_group_{log_ == nullptr ? 0 : log_->add_group(group.members)} {}

void SimulatedCommunicator::do_submit(Batch batch, Stream stream) {
  const std::int64_t now_ns = trace::now_ns();
  record_collectives(instruments_, batch, rank(), size(), now_ns, now_ns);
  if (log_ == nullptr) { return; }
  trace::BatchWork work{.label = batch.label(), .group = log_group_, .entries = {}};
  for (const CommOp& op : batch.ops()) {
    const auto elems = static_cast<double>(full_elems(op, size()));
    work.entries.push_back(
        {std::string{name_of(op)}, elems * static_cast<double>(size_of(dtype_of(op)))});
  }
  log_->batch(stream.state()->log_number(), std::move(work));
}

std::vector<std::string> SimulatedCommunicator::do_exchange(std::string message) {
  return std::vector<std::string>(static_cast<std::size_t>(size()), message);
}

std::unique_ptr<Communicator> SimulatedCommunicator::do_split(const RankGroup& group) {
  return std::make_unique<SimulatedCommunicator>(group, *this,
                                                 instruments_.of_split(next_split_++));
}

}  // namespace tessera::comm
