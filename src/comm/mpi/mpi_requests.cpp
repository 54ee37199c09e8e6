#include "comm/mpi/mpi_requests.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "comm/control/wait_clock.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

// The messages of a failed job end by themselves within this time, or not at all.
constexpr std::chrono::milliseconds kMoment{500};

int count_of(std::size_t bytes) {
  TESSERA_ASSERT(bytes <= static_cast<std::size_t>(std::numeric_limits<int>::max()));
  return static_cast<int>(bytes);
}

}  // namespace

MpiRequests::MpiRequests(MpiProcess& process, std::size_t most) : process_{process} {
  requests_.reserve(most);
  ends_.reserve(most);
  completed_.resize(most);
}

MPI_Request& MpiRequests::next(int peer, bool receives) {
  if (left_ == 0) {
    requests_.clear();
    ends_.clear();
  }
  TESSERA_ASSERT(requests_.size() < completed_.size());
  ends_.push_back({peer, receives});
  return requests_.emplace_back(MPI_REQUEST_NULL);
}

void MpiRequests::send(MPI_Comm comm, const void* data, std::size_t bytes, int peer, int tag) {
  MPI_Request& request = next(peer, /*receives=*/false);
  mpi_check(MPI_Isend(data, count_of(bytes), MPI_BYTE, peer, tag, comm, &request), "MPI_Isend");
  ++left_;
}

void MpiRequests::send_matched(MPI_Comm comm, const void* data, std::size_t bytes, int peer,
                               int tag) {
  MPI_Request& request = next(peer, /*receives=*/false);
  mpi_check(MPI_Issend(data, count_of(bytes), MPI_BYTE, peer, tag, comm, &request), "MPI_Issend");
  ++left_;
}

void MpiRequests::receive(MPI_Comm comm, void* data, std::size_t bytes, int peer, int tag) {
  MPI_Request& request = next(peer, /*receives=*/true);
  mpi_check(MPI_Irecv(data, count_of(bytes), MPI_BYTE, peer, tag, comm, &request), "MPI_Irecv");
  ++left_;
}

bool MpiRequests::test() {
  if (left_ == 0) { return false; }
  int count = 0;
  mpi_check(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         completed_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  if (count == MPI_UNDEFINED) { count = left_; }  // none is active
  left_ -= count;
  return count > 0;
}

std::vector<int> MpiRequests::peers() const {
  std::vector<int> peers;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL) { peers.push_back(ends_[i].peer); }
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

// A send cannot be cancelled (libraries do not support it), nor a receive that has begun: those end
// if the peer still takes part.
void MpiRequests::take_back() noexcept {
  if (left_ == 0) { return; }
  Patience patience{kMoment};
  bool cancelled = false;
  try {
    for (;;) {
      {
        const MpiCalls calls{process_};
        for (std::size_t i = 0; !cancelled && i < requests_.size(); ++i) {
          if (ends_[i].receives && requests_[i] != MPI_REQUEST_NULL) { MPI_Cancel(&requests_[i]); }
        }
        cancelled = true;
        (void)test();
      }
      if (left_ == 0) { return; }
      if (patience.over()) { break; }
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  } catch (const std::exception&) {  // MPI has failed, or the process is already abandoned
  }
  process_.abandon();
  left_ = 0;
}

}  // namespace tessera::comm
