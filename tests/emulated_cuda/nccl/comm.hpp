#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "emulated_cuda/nccl/wire.hpp"

namespace emulated_nccl {

/// What the job calls this process, also where its rank in a communicator is another.
[[nodiscard]] int own_rank();

/// What a test asks of the double, by environment variables that only say it to one rank of the job
/// where they end with ":RANK".
struct Faults {
  bool init_fails = false;   ///< TESSERA_EMULATED_NCCL_INIT=fails
  bool init_hangs = false;   ///< TESSERA_EMULATED_NCCL_INIT=hangs
  bool split_fails = false;  ///< TESSERA_EMULATED_NCCL_SPLIT=fails
  bool split_hangs = false;  ///< TESSERA_EMULATED_NCCL_SPLIT=hangs
  /// TESSERA_EMULATED_NCCL_SPLIT_FAILS_AT=K: split number K
  std::optional<std::uint64_t> split_fails_at;
  std::optional<std::uint64_t> fails_at;   ///< TESSERA_EMULATED_NCCL_FAILS_AT=K: in group number K
  bool notices_loss = false;               ///< TESSERA_EMULATED_NCCL_LOSS=noticed
  std::optional<std::uint64_t> blocks_at;  ///< TESSERA_EMULATED_NCCL_BLOCKS_AT=K: enqueuing group K
  bool abort_hangs = false;                ///< TESSERA_EMULATED_NCCL_ABORT=hangs
};
[[nodiscard]] Faults faults();
/// What the variable says to this process.
[[nodiscard]] std::string setting(const char* name);

/// A call with its addresses.
struct Work {
  Call call;
  const void* from = nullptr;
  void* to = nullptr;
};

/// One rank's part in a communicator. Shared with the work that is enqueued, which may outlive the
/// handle.
class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(int rank, int ranks, int device);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// Connects on a thread of its own.
  void start(const std::string& name);
  /// Splits, on a thread of its own, and is in progress until then: `made` gets a handle at the
  /// end, unless the rank is in no group.
  void split(const SplitAsk& ask, ncclComm_t* made);
  /// Announces a window to the peers when idle, on its own thread. It is in progress until all
  /// ranks have reached it; then `there` is called.
  void register_window(const WindowAsk& ask, std::function<void()> there);
  /// Its own thread has ended: nothing is written to what a split has been given any more, and
  /// nothing is enqueued any more.
  void wait_for_own_thread() const;
  /// Enqueues a group of calls on `stream`. The first group connects to the peers before that, on a
  /// thread of its own, and is in progress until all ranks have come.
  [[nodiscard]] ncclResult_t enqueue(std::vector<Work> works, cudaStream_t stream);

  [[nodiscard]] ncclResult_t state();
  /// Work that waits for peers goes on without them.
  void end() noexcept { aborted_ = true; }
  /// The same; does not return where a test asks for that.
  void abort() noexcept;
  /// Waits until no graph holds its work any more, as NCCL does at the end of a communicator. Ends
  /// the process where that takes too long: NCCL would wait for ever.
  void wait_for_graphs() const;
  /// Waits until no other communicator on the device has work that has begun and was not aborted,
  /// as NCCL does where it frees memory. Ends the process likewise.
  void wait_for_device() const;
  /// Whether groups that it was given, outside of graphs, have not ended yet.
  [[nodiscard]] bool busy() const noexcept { return under_way_ > 0 && !aborted_; }
  [[nodiscard]] bool aborted() const noexcept { return aborted_; }
  [[nodiscard]] bool started() const noexcept { return state_ == ncclSuccess; }

 private:
  [[nodiscard]] ncclResult_t connect(const std::string& name, const Line::GoesOn& goes_on);
  [[nodiscard]] ncclResult_t split_off(const SplitAsk& ask, ncclComm_t* made);
  [[nodiscard]] ncclResult_t meet_peers();
  [[nodiscard]] ncclResult_t meet_for(const WindowAsk& ask);
  [[nodiscard]] ncclResult_t give(std::vector<Work> works, cudaStream_t stream);
  void pass(std::uint64_t ticket);
  void end_turn_locked();
  void run(std::uint64_t ticket, const std::vector<Work>& works);
  void move(const std::vector<Work>& works);
  [[nodiscard]] bool check(Line::End end);
  void wait_for_abort();

  const int rank_;
  const int ranks_;
  const int device_;
  const Faults faults_;
  std::atomic<bool> aborted_ = false;
  std::atomic<ncclResult_t> state_ = ncclInProgress;
  std::atomic<int> launching_ = 0;  // so many questions are still answered with "in progress"
  std::shared_ptr<std::atomic<int>> in_graphs_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> under_way_ = 0;  // groups outside of graphs
  std::atomic<int> running_ = 0;    // groups on the device, those of graphs too
  std::atomic<bool> own_thread_works_ = false;
  bool connected_ = false;
  void* memory_ = nullptr;  // of the device: TESSERA_EMULATED_NCCL_COMM_BYTES
  Line line_;
  std::uint64_t tickets_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;          // groups run in the order in which they were given
  std::set<std::uint64_t> passed_;  // of graphs that went without a launch
};

/// What a handle stands for.
[[nodiscard]] std::shared_ptr<Comm> comm_of(ncclComm_t handle);
[[nodiscard]] ncclComm_t make_handle(std::shared_ptr<Comm> comm);

}  // namespace emulated_nccl
