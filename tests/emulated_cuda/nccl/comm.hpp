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

/// This process's rank in the job, which may differ from its rank in a communicator.
[[nodiscard]] int own_rank();

/// Faults that a test requests by environment variables. A value that ends with ":RANK" applies to
/// one rank of the job only.
struct Faults {
  bool init_fails = false;   ///< TESSERA_EMULATED_NCCL_INIT=fails
  bool init_hangs = false;   ///< TESSERA_EMULATED_NCCL_INIT=hangs
  bool split_fails = false;  ///< TESSERA_EMULATED_NCCL_SPLIT=fails
  bool split_hangs = false;  ///< TESSERA_EMULATED_NCCL_SPLIT=hangs
  /// TESSERA_EMULATED_NCCL_SPLIT_FAILS_AT=K: number of the failing split
  std::optional<std::uint64_t> split_fails_at;
  std::optional<std::uint64_t> fails_at;   ///< TESSERA_EMULATED_NCCL_FAILS_AT=K: at group K
  bool notices_loss = false;               ///< TESSERA_EMULATED_NCCL_LOSS=noticed
  std::optional<std::uint64_t> blocks_at;  ///< TESSERA_EMULATED_NCCL_BLOCKS_AT=K: at group K
  bool abort_hangs = false;                ///< TESSERA_EMULATED_NCCL_ABORT=hangs
};
[[nodiscard]] Faults faults();
/// The variable's value for this process.
[[nodiscard]] std::string setting(const char* name);

/// A call with its addresses.
struct Work {
  Call call;
  const void* from = nullptr;
  void* to = nullptr;
};

/// One rank's part in a communicator. Enqueued work shares it and may outlive the handle.
class Comm : public std::enable_shared_from_this<Comm> {
 public:
  Comm(int rank, int ranks, int device);

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int ranks() const noexcept { return ranks_; }

  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  /// Connects on a separate thread.
  void start(const std::string& name);
  /// Splits on a separate thread; the communicator is in progress until the end. `made` then gets a
  /// handle, unless the rank is in no group.
  void split(const SplitAsk& ask, ncclComm_t* made);
  /// Announces a window to the peers on its own thread, when idle. The communicator is in progress
  /// until all ranks reach this call; then `there` is called.
  void register_window(const WindowAsk& ask, std::function<void()> there);
  /// Waits until the communicator's thread ends. After this it neither writes a split's handle nor
  /// enqueues work.
  void wait_for_own_thread() const;
  /// Enqueues a group of calls on `stream`. The first group first connects to the peers, on a
  /// separate thread, and is in progress until all ranks have arrived.
  [[nodiscard]] ncclResult_t enqueue(std::vector<Work> works, cudaStream_t stream);

  [[nodiscard]] ncclResult_t state();
  /// Work that waits for peers continues without them.
  void end() noexcept { aborted_ = true; }
  /// Like `end`; does not return if a test asks it to hang.
  void abort() noexcept;
  /// Waits until no graph holds its work, as NCCL does at the end of a communicator. Ends the
  /// process on timeout, where NCCL would wait forever.
  void wait_for_graphs() const;
  /// Waits until no other communicator has started, unaborted work on the device, as NCCL does when
  /// it frees memory. Ends the process on timeout, like wait_for_graphs.
  void wait_for_device() const;
  /// Whether enqueued groups outside of graphs are unfinished.
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
  std::atomic<int> launching_ = 0;  // number of queries still to answer with "in progress"
  std::shared_ptr<std::atomic<int>> in_graphs_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<int> under_way_ = 0;  // groups outside of graphs
  std::atomic<int> running_ = 0;    // groups on the device, including those of graphs
  std::atomic<bool> own_thread_works_ = false;
  bool connected_ = false;
  void* memory_ = nullptr;  // device memory: TESSERA_EMULATED_NCCL_COMM_BYTES
  Line line_;
  std::uint64_t tickets_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t turn_ = 0;          // groups run in the order in which they were enqueued
  std::set<std::uint64_t> passed_;  // turns of graphs destroyed without a launch
};

/// The state behind a handle.
[[nodiscard]] std::shared_ptr<Comm> comm_of(ncclComm_t handle);
[[nodiscard]] ncclComm_t make_handle(std::shared_ptr<Comm> comm);

}  // namespace emulated_nccl
