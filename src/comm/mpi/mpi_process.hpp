#pragma once

// Only MPI's C interface: the C++ one was removed from the standard.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>

namespace tessera::comm {

/// This process's part in an MPI job. MPI can be started and ended once in a process, and is the
/// only thing here that belongs to the process and not to a rank's World.
///
/// Threads: any, by the lock that `MpiCalls` holds: the library is asked for MPI_THREAD_SERIALIZED.
class MpiProcess {
 public:
  /// Starts MPI at the first call, and registers its end at the process's exit: MPI_Finalize if all
  /// ranks leave with status 0, otherwise MPI_Abort with the status, so that no rank waits for this
  /// one. Throws ConfigError if several threads cannot use the library.
  static MpiProcess& start();

  MpiProcess(const MpiProcess&) = delete;
  MpiProcess& operator=(const MpiProcess&) = delete;

  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] int size() const noexcept { return size_; }
  /// Resident bytes that MPI's start added; 0 if the program had started it before.
  [[nodiscard]] std::size_t start_bytes() const noexcept { return start_bytes_; }
  /// Tags are 0 ... tags() - 1.
  [[nodiscard]] int tags() const noexcept { return tags_; }
  /// A communicator of all ranks for each kind of message, so that kinds cannot match each other:
  /// batches of the two channels, and where the ranks meet.
  [[nodiscard]] MPI_Comm gather() const noexcept { return gather_; }
  [[nodiscard]] MPI_Comm reduce() const noexcept { return reduce_; }
  [[nodiscard]] MPI_Comm meeting() const noexcept { return meeting_; }
  /// Whether one machine has all ranks.
  [[nodiscard]] bool on_one_machine() const noexcept { return on_one_machine_; }

  /// A run has ended with an error: messages may be in transit that a later run could not
  /// distinguish from its own. The process must leave; if it does so with an error, `status` (0:
  /// its own) becomes the job's.
  void fail(const std::string& text, int status) noexcept;
  /// Throws CommError if a run has failed.
  void check_usable() const;

  /// From here on no thread calls MPI, except to end the job: outstanding requests point to memory
  /// that is about to be freed, and MPI moves data only while it is called.
  void abandon() noexcept { abandoned_ = true; }

  /// How long a process that leaves waits for the others.
  void leave_within(std::chrono::milliseconds deadline) noexcept { deadline_ = deadline; }

 private:
  friend class MpiCalls;
  MpiProcess();
  ~MpiProcess() = default;
  static void leave(int status, void* process) noexcept;
  [[nodiscard]] bool all_leave() noexcept;
  void abort_job(int status) noexcept;

  std::mutex calls_;
  std::atomic<bool> abandoned_ = false;
  bool started_here_ = false;
  std::size_t start_bytes_ = 0;
  int rank_ = 0;
  int size_ = 1;
  int tags_ = 1;
  MPI_Comm gather_ = MPI_COMM_NULL;
  MPI_Comm reduce_ = MPI_COMM_NULL;
  MPI_Comm meeting_ = MPI_COMM_NULL;
  bool on_one_machine_ = false;

  mutable std::mutex failure_lock_;
  bool failed_ = false;
  std::string failure_;
  std::atomic<int> failure_status_ = 0;
  std::atomic<std::chrono::milliseconds> deadline_{std::chrono::milliseconds{300'000}};
};

/// While it lives, only this thread may call MPI. Held for single calls, never while waiting.
/// Throws Aborted once the process is abandoned.
class MpiCalls {
 public:
  explicit MpiCalls(MpiProcess& process);

 private:
  std::scoped_lock<std::mutex> lock_;
};

/// Throws CommError with MPI's text unless `code` is MPI_SUCCESS. `call` is a literal.
void mpi_check(int code, const char* call);

/// "Open MPI v4.1.4": the beginning of the library's version text.
[[nodiscard]] std::string mpi_library_version();

}  // namespace tessera::comm
