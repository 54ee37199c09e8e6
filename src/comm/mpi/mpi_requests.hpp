#pragma once

#include <cstddef>
#include <vector>

#include "comm/mpi/mpi_process.hpp"

namespace tessera {

/// Messages under way: sends and receives that are waited for together.
///
/// Memory:  made for `most` at a time; nothing is allocated later.
/// Errors:  what is still under way when it is destroyed (a rank or the job has failed) is taken
///          back; if that does not succeed within a moment, the process is abandoned: see there.
/// Threads: `send`, `receive` and `test` within MpiCalls, the rest without.
class MpiRequests {
 public:
  MpiRequests(MpiProcess& process, std::size_t most);
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;
  ~MpiRequests() { take_back(); }

  void send(MPI_Comm comm, const void* data, std::size_t bytes, int peer, int tag);
  void receive(MPI_Comm comm, void* data, std::size_t bytes, int peer, int tag);

  /// Lets MPI work. True if a message has arrived or left since the last call.
  bool test();
  [[nodiscard]] bool done() const noexcept { return left_ == 0; }
  /// Those whose messages are still under way, in ascending order.
  [[nodiscard]] std::vector<int> peers() const;

  void take_back() noexcept;

 private:
  struct End {
    int peer;
    bool receives;
  };

  [[nodiscard]] MPI_Request& next(int peer, bool receives);

  MpiProcess& process_;
  std::vector<MPI_Request> requests_;
  std::vector<End> ends_;       // of each request
  std::vector<int> completed_;  // MPI's answer: which
  int left_ = 0;
};

}  // namespace tessera
