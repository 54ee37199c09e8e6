#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/instruments.hpp"
#include "comm/nccl/nccl_memory.hpp"
#include "comm/nccl/nccl_watchdog.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::nccl {

/// What the two communicators of a rank share. The watchdog goes before what it watches, and what
/// is registered with the communicators before these end.
struct NcclLink {
  NcclLink() = default;
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;
  ~NcclLink();

  std::shared_ptr<JobGroup> group;
  CountedMemory memory;  ///< what the device lost when NCCL was started
  std::array<std::shared_ptr<NcclChannel>, 2> channels;
  std::shared_ptr<NcclMemory> arenas;  ///< null in a job of one
  std::unique_ptr<NcclWatchdog> watchdog;
};

/// Ranks are processes, each with a CUDA device; NCCL moves the data, in its own order of additions
/// and, for 16-bit types, with its own precision of sums.
///
/// Time:    `submit` enqueues and returns, except where NCCL connects to a peer for the first time:
///          it waits for the peer then.
/// Errors:  as Communicator. Ranks that issue different batches are told so by the control path
///          (JobGroup) within moments: by then data may have moved.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclLink> link, int channel, const Instruments& instruments);

  [[nodiscard]] std::string_view name() const noexcept override { return "nccl"; }

 private:
  void do_submit(Batch batch, Stream stream) override;
  std::vector<std::string> do_exchange(std::string message) override;
  std::unique_ptr<Communicator> do_split(const RankGroup& group) override;
  void do_abort(std::string_view reason) noexcept override;
  void do_withdraw() noexcept override;

  void enqueue(const Batch& batch, cuda::CudaStream& stream);
  void watch_begin(std::uint64_t sequence, Stream stream);
  void watch_end(const Batch& batch, std::uint64_t sequence, Stream stream);

  std::shared_ptr<NcclLink> link_;
  NcclChannel& channel_;
  int number_;
  Instruments instruments_;
  std::shared_ptr<std::int64_t> begin_ns_;  // of the batch that its stream is in
  std::string code_;
};

}  // namespace tessera::nccl
