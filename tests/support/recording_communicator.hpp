#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "support/signature.hpp"
#include "tessera/base/error.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera::test {

/// A communicator that records its batches and moves nothing, for tests of which batches are
/// submitted. Its peers always agree with it.
class RecordingCommunicator final : public Communicator {
 public:
  struct Submission {
    Batch batch;
    Stream stream;
  };

  explicit RecordingCommunicator(int size, int rank = 0) noexcept : Communicator{rank, size} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "recording"; }

  [[nodiscard]] const std::vector<Submission>& log() const noexcept { return log_; }
  /// One line per batch, in order.
  [[nodiscard]] std::vector<std::string> signatures() const {
    std::vector<std::string> lines;
    for (const Submission& s : log_) { lines.push_back(signature(s.batch, size())); }
    return lines;
  }
  /// Bytes that this rank would have sent so far.
  [[nodiscard]] std::size_t bytes_sent() const noexcept {
    std::size_t bytes = 0;
    for (const Submission& s : log_) {
      for (const CommOp& op : s.batch.ops()) { bytes += sent_bytes(op, rank(), size()); }
    }
    return bytes;
  }

 private:
  void do_submit(Batch batch, Stream stream) override {
    check_alive();
    log_.push_back({std::move(batch), stream});
  }
  std::vector<std::string> do_exchange(std::string message) override {
    check_alive();
    return std::vector<std::string>(static_cast<std::size_t>(size()), message);
  }
  std::unique_ptr<Communicator> do_split(const RankGroup& group) override {
    check_alive();
    return std::make_unique<RecordingCommunicator>(static_cast<int>(group.members.size()),
                                                   group.rank);
  }
  void do_abort(std::string_view reason) noexcept override {
    if (reason_.empty()) { reason_ = reason; }
  }
  void do_withdraw() noexcept override {}

  void check_alive() const {
    if (!reason_.empty()) { throw CommError{reason_}; }
  }

  std::vector<Submission> log_;
  std::string reason_;
};

}  // namespace tessera::test
