#pragma once

#include "comm/instruments.hpp"
#include "tessera/comm/simulate.hpp"
#include "tessera/memory/buffer.hpp"

namespace tessera {

/// Stands for a communicator of any size: checks and records batches, moves nothing, holds the
/// staging memory of the kind that it stands for.
class SimulatedCommunicator final : public Communicator {
 public:
  SimulatedCommunicator(const SimulatedRank& rank, Device& device, MemoryTracker& memory,
                        Instruments instruments);

  [[nodiscard]] std::string_view name() const noexcept override { return "simulated"; }

 private:
  void do_submit(Batch batch, Stream stream) override;
  std::vector<std::string> do_exchange(std::string message) override;
  // There is no peer that could fail, and nothing is ever under way.
  void do_abort(std::string_view /*reason*/) noexcept override {}
  void do_withdraw() noexcept override {}

  Buffer staging_;
  Instruments instruments_;
};

}  // namespace tessera
