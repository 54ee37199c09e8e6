#pragma once

#include <cstdint>
#include <memory>

#include "comm/control/local/local_ranks.hpp"
#include "comm/counts_traffic.hpp"
#include "comm/instruments.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::comm {

/// Ranks are threads of one process and read each other's buffers. This is one channel: batches of
/// different channels, and texts, are matched separately; a failure of one channel ends all,
/// including channels split from it.
class LocalCommunicator final : public Communicator, public CountsTraffic {
 public:
  /// Rank `rank` of the channel, which is one of those of `ranks`.
  LocalCommunicator(std::shared_ptr<LocalRanks> ranks, std::shared_ptr<LocalChannel> channel,
                    int rank, Instruments instruments);

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

  std::shared_ptr<LocalRanks> ranks_;
  std::shared_ptr<LocalChannel> channel_;
  Instruments instruments_;
  std::uint64_t next_batch_ = 0;
  std::uint64_t next_exchange_ = 0;
  std::uint64_t next_split_ = 0;
};

}  // namespace tessera::comm
