#include "comm/mpi/mpi_process.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <string_view>
#include <thread>

#include "base/resident.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/wait_clock.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

constexpr int kCommFailure = 4;  // the exit status of a communication failure
constexpr std::chrono::milliseconds kExitPoll{1};

/// Starts MPI unless the program has. Returns whether it was started here.
bool start_library() {
  int running = 0;
  mpi_check(MPI_Initialized(&running), "MPI_Initialized");
  int provided = MPI_THREAD_SINGLE;
  if (running != 0) {
    mpi_check(MPI_Query_thread(&provided), "MPI_Query_thread");
  } else {
    mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided),
              "MPI_Init_thread");
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    throw ConfigError{
        fmt::format("{} provides MPI thread level {}, but several threads take turns calling MPI "
                    "here (MPI_THREAD_SERIALIZED); use a library built with threads{}",
                    mpi_library_version(), provided,
                    running != 0 ? ", or ask for that level in MPI_Init_thread" : "")};
  }
  return running == 0;
}

int count_tags() {
  int* largest = nullptr;
  int found = 0;
  mpi_check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest), &found),
            "MPI_Comm_get_attr");
  constexpr int kMost = 1 << 30;
  return found == 0 ? 32768 : std::min(*largest, kMost - 1) + 1;
}

MPI_Comm duplicate() {
  MPI_Comm comm = MPI_COMM_NULL;
  mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
  mpi_check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return comm;
}

/// *Collective.* The number of ranks that can share memory with this one.
int count_on_this_machine() {
  MPI_Comm here = MPI_COMM_NULL;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here),
            "MPI_Comm_split_type");
  int count = 0;
  mpi_check(MPI_Comm_size(here, &count), "MPI_Comm_size");
  mpi_check(MPI_Comm_free(&here), "MPI_Comm_free");
  return count;
}

}  // namespace

MpiProcess& MpiProcess::start() {
  // Never destroyed: the process's exit handler uses it after everything else is gone.
  static MpiProcess* const process = new MpiProcess;
  return *process;
}

MpiProcess::MpiProcess() {
  const std::size_t before = resident_bytes();
  started_here_ = start_library();
  mpi_check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  mpi_check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  tags_ = count_tags();
  gather_ = duplicate();
  reduce_ = duplicate();
  meeting_ = duplicate();
  on_one_machine_ = count_on_this_machine() == size_;
  const std::size_t after = resident_bytes();
  if (started_here_ && after > before) { start_bytes_ = after - before; }
  // After MPI's own start, so that this runs before handlers that MPI may have registered.
  if (::on_exit(&MpiProcess::leave, this) != 0) {
    throw Error{"the end of MPI cannot be registered with the process's exit"};
  }
}

void MpiProcess::fail(const std::string& text, int status) noexcept {
  const std::scoped_lock lock{failure_lock_};
  if (failed_) { return; }
  failed_ = true;
  failure_status_ = status;
  try {
    failure_ = text;
  } catch (const std::bad_alloc&) {  // fails without its text
  }
}

void MpiProcess::check_usable() const {
  const std::scoped_lock lock{failure_lock_};
  if (failed_) { throw CommError{"an earlier run of this job has failed: " + failure_}; }
}

// The lock on calls is not taken unconditionally: a thread may hang in a call, and exit must not.
void MpiProcess::leave(int status, void* process) noexcept {
  auto& self = *static_cast<MpiProcess*>(process);
  int ended = 0;
  MPI_Finalized(&ended);
  if (ended != 0) { return; }
  bool failed = false;
  {
    const std::scoped_lock lock{self.failure_lock_};
    failed = self.failed_;
  }
  if (status != 0) {
    const int told = self.failure_status_;
    return self.abort_job(told != 0 ? told : status);
  }
  if (failed) { return self.abort_job(kCommFailure); }
  if (!self.started_here_) { return; }
  if (!self.all_leave()) { return self.abort_job(kCommFailure); }
  MPI_Finalize();
}

/// Waits for all ranks: MPI_Finalize itself has no deadline.
bool MpiProcess::all_leave() noexcept {
  MPI_Request everyone = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(meeting_, &everyone) != MPI_SUCCESS) { return false; }
  Patience patience{deadline_.load()};
  for (;;) {
    int here = 0;
    if (MPI_Test(&everyone, &here, MPI_STATUS_IGNORE) != MPI_SUCCESS) { return false; }
    if (here != 0) { return true; }
    if (patience.over()) {
      std::fputs("error: ranks of this job have not ended by the deadline\n", stderr);
      return false;
    }
    std::this_thread::sleep_for(kExitPoll);
  }
}

void MpiProcess::abort_job(int status) noexcept {
  std::cout.flush();
  std::fflush(nullptr);  // MPI_Abort does not flush
  MPI_Abort(MPI_COMM_WORLD, status);
}

MpiCalls::MpiCalls(MpiProcess& process) : lock_{process.calls_} {
  if (process.abandoned_) { throw Aborted{"this rank has left its MPI job"}; }
}

void mpi_check(int code, const char* call) {
  if (code == MPI_SUCCESS) { return; }
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError{fmt::format("{} failed: {}", call, text)};
}

std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string_view all{text};  // some libraries include the final 0 in `length`
  return std::string{all.substr(0, all.find_first_of(",\n"))};
}

}  // namespace tessera::comm
