#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "comm/control/local/local_ranks.hpp"
#include "comm/counts_traffic.hpp"
#include "comm/instruments.hpp"
#include "comm/local/mover.hpp"
#include "kernels/table.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// Ranks are threads of one process whose devices read each other's memory: one shared GPU, or
/// several. Collectives are copies and kernels on the given stream, and wait for each other only by
/// events.
///
/// Time:    `submit` returns when every rank has submitted the same batch and its work is enqueued
///          everywhere: the hosts meet, since a stream can only wait for an event that was
///          recorded. No host waits for a device. In steady training all ranks arrive together.
/// Errors:  as Communicator; `submit` notices a peer that is late or lost, and its error also
///          ends the stream.
class LocalDeviceCommunicator final : public Communicator, public CountsTraffic {
 public:
  /// Rank `rank` of the channel, which is one of those of `ranks`. `device` and `kernels` belong to
  /// this rank and outlive the communicator.
  LocalDeviceCommunicator(std::shared_ptr<LocalRanks> ranks, std::shared_ptr<LocalChannel> channel,
                          int rank, Instruments instruments, Device& device,
                          const kernels::Table& kernels);

  [[nodiscard]] std::string_view name() const noexcept override { return "local"; }
  [[nodiscard]] bool shares_memory() const noexcept override { return true; }
  [[nodiscard]] std::vector<std::size_t> sent_to_each() const override;

 private:
  void do_submit(Batch batch, Stream stream) override;
  std::vector<std::string> do_exchange(std::string message) override;
  std::unique_ptr<Communicator> do_split(const RankGroup& group) override;
  void do_abort(std::string_view reason) noexcept override;
  void do_withdraw() noexcept override;
  [[nodiscard]] std::string do_name(int job_rank) const override;

  void enqueue(const Batch& batch, Meeting& meeting, Mover& mover, Stream stream);

  std::shared_ptr<LocalRanks> ranks_;
  std::shared_ptr<LocalChannel> channel_;
  Instruments instruments_;
  Device& device_;
  const kernels::Table& kernels_;
  DeviceMarks marks_;
  std::uint64_t next_batch_ = 0;
  std::uint64_t next_exchange_ = 0;
  std::uint64_t next_split_ = 0;
};

}  // namespace tessera::comm
