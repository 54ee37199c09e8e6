#pragma once

#include <cstddef>
#include <vector>

#include "comm/mpi/mpi_process.hpp"

namespace tessera::comm {

/// Messages in transit: sends and receives that are waited for together.
///
/// Memory:  for `most` messages at a time; nothing is allocated later.
/// Errors:  messages still in transit on destruction (a rank or the job has failed) are withdrawn;
///          if that does not succeed within a moment, the process is abandoned
///          (MpiProcess::abandon).
/// Threads: `send`, `send_matched`, `receive` and `test` within MpiCalls, the rest without.
class MpiRequests {
 public:
  MpiRequests(MpiProcess& process, std::size_t most);
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;
  ~MpiRequests() { take_back(); }

  void send(MPI_Comm comm, const void* data, std::size_t bytes, int peer, int tag);
  /// The same, done only when the peer has begun to receive it.
  void send_matched(MPI_Comm comm, const void* data, std::size_t bytes, int peer, int tag);
  void receive(MPI_Comm comm, void* data, std::size_t bytes, int peer, int tag);

  /// Lets MPI make progress. Returns whether a message has arrived or left since the last call.
  bool test();
  [[nodiscard]] bool done() const noexcept { return left_ == 0; }
  /// The peers whose messages are still in transit, in ascending order.
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
  std::vector<int> completed_;  // MPI's answer: the completed requests
  int left_ = 0;
};

}  // namespace tessera::comm
