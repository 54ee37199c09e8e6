#pragma once

#include <cstdint>
#include <memory>

#include "comm/instruments.hpp"
#include "tessera/comm/backend.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera::comm {

/// The staging memory of the kind of communicator that a simulated one stands for.
struct SimulatedStaging {
  SimulatedRank rank;
  Device& device;
  MemoryTracker& memory;

  [[nodiscard]] std::shared_ptr<const Buffer> take() const;
};

/// Stands for a communicator of any size: checks and records batches, moves nothing, holds the
/// staging memory of the kind that it stands for, and writes batches into `log` if there is one.
/// Communicators split from it share the staging, unless they run beside it.
class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(const SimulatedRank& rank, Device& device, MemoryTracker& memory,
                        Instruments instruments, trace::WorkLog* log);
  /// A group's communicator, split from one that has staging.
  SimulatedCommunicator(const RankGroup& group, const SimulatedCommunicator& whole,
                        Instruments instruments);

  [[nodiscard]] std::string_view name() const noexcept override { return "simulated"; }

 private:
  void do_submit(Batch batch, Stream stream) override;
  std::vector<std::string> do_exchange(std::string message) override;
  std::unique_ptr<Communicator> do_split(const RankGroup& group) override;
  void do_run_beside() override { staging_ = kind_.take(); }
  // No peer can fail, and nothing is ever in transit.
  void do_abort(std::string_view /*reason*/) noexcept override {}
  void do_withdraw() noexcept override {}
  // A plan splits the ranks of a large job thousands of times.
  [[nodiscard]] bool do_answer_for_all() const noexcept override { return true; }

  SimulatedStaging kind_;
  std::shared_ptr<const Buffer> staging_;
  Instruments instruments_;
  trace::WorkLog* log_;
  std::size_t log_group_ = 0;
  std::uint64_t next_split_ = 0;
};

}  // namespace tessera::comm
