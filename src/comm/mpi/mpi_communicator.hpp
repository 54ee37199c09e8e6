#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "comm/instruments.hpp"
#include "comm/mpi/mpi_process.hpp"
#include "comm/mpi/mpi_tags.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/device/device.hpp"
#include "tessera/memory/tracker.hpp"

namespace tessera::comm {

struct MpiChannel;
struct MpiLine;

/// Ranks are processes. A batch begins when every rank has announced it and all batches are equal;
/// the stream that runs it polls MPI.
///
/// Memory: staging_bytes(), of Category::communicator, from construction to destruction; the same
///         again for each further batch that runs at the same time on another stream.
///         Communicators split from it use the same memory.
class MpiCommunicator final : public Communicator {
 public:
  /// A communicator of all ranks.
  MpiCommunicator(const std::shared_ptr<TcpControlPlane>& control,
                  const std::shared_ptr<MpiLine>& line, Instruments instruments);

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }

 private:
  void do_submit(Batch batch, Stream stream) override;
  std::vector<std::string> do_exchange(std::string message) override;
  std::unique_ptr<Communicator> do_split(const RankGroup& group) override;
  void do_run_beside() override;
  void do_abort(std::string_view reason) noexcept override;
  void do_withdraw() noexcept override;
  [[nodiscard]] std::string do_name(int job_rank) const override;

  explicit MpiCommunicator(std::shared_ptr<MpiChannel> channel);

  std::shared_ptr<MpiChannel> channel_;
  std::string code_;  // of the batch that is being submitted
  std::uint64_t next_batch_ = 0;
  std::uint64_t next_split_ = 0;
};

}  // namespace tessera::comm
