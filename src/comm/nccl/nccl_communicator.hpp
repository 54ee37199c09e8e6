#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "comm/instruments.hpp"
#include "comm/nccl/nccl_link.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::comm::nccl {

/// Ranks are processes, each with a CUDA device; NCCL moves the data, in its own order of additions
/// and, for 16-bit types, with its own precision of sums.
///
/// Time:    `submit` enqueues and returns, except where NCCL first connects to a peer: then it
///          waits for the peer.
/// Errors:  as Communicator. The control path (TcpControlPlane) tells ranks that issue different
///          batches within moments: by then data may have moved. `withdraw` with work in progress
///          ends all of the rank's communicators, and so does the end of one whose owner is
///          unwinding: NCCL ends none while a kernel of another waits for a peer.
class NcclCommunicator final : public Communicator {
 public:
  /// A communicator of all ranks.
  NcclCommunicator(std::shared_ptr<NcclLink> link, std::shared_ptr<NcclChannel> channel,
                   const Instruments& instruments);
  ~NcclCommunicator() override;
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }

 private:
  NcclCommunicator(std::shared_ptr<NcclLink> link, const RankGroup& group, NcclSplit split,
                   const Instruments& instruments);

  void do_submit(Batch batch, Stream stream) override;
  std::vector<std::string> do_exchange(std::string message) override;
  std::unique_ptr<Communicator> do_split(const RankGroup& group) override;
  void do_abort(std::string_view reason) noexcept override;
  void do_withdraw() noexcept override;
  [[nodiscard]] std::string do_name(int job_rank) const override;

  [[nodiscard]] std::exception_ptr fail(const std::exception_ptr& cause);
  [[nodiscard]] int agree_on_number(const std::string& name);
  [[nodiscard]] NcclSplit make_split(const RankGroup& group, std::uint64_t number);
  void enqueue(const Batch& batch, cuda::CudaStream& stream);

  std::shared_ptr<NcclLink> link_;
  std::shared_ptr<NcclChannel> channel_;
  CountedMemory taken_;
  Instruments instruments_;
  std::string code_;
  std::uint64_t next_split_ = 0;
  const int uncaught_ =
      std::uncaught_exceptions();  // a higher count means that its owner is unwinding
};

}  // namespace tessera::comm::nccl
