#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/batch_code.hpp"
#include "comm/control/rank_errors.hpp"
#include "comm/control/tcp/tcp_control_plane.hpp"

namespace tessera::test {

/// A free port of the loopback.
inline int free_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool bound =
      ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  socklen_t bytes = sizeof address;
  (void)::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &bytes);
  ::close(socket);
  return bound ? ntohs(address.sin_port) : 0;
}

inline comm::JobPlace place_of(int rank, int size, int port) {
  comm::JobPlace place;
  place.rank = rank;
  place.job.size = size;
  place.job.build = "a build";
  place.job.token = "a launch";
  place.job.secret = "a secret";
  place.meet = {"127.0.0.1", port};
  return place;
}

/// Connects to the loopback like any process; -1 if there is no listener.
inline int connect_as_stranger(int port, int attempts = 500) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
      return socket;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds{10});
  }
  ::close(socket);
  return -1;
}

/// Ranks of a job that are threads, each with its own connection.
class Meeting {
 public:
  using Body = std::function<void(comm::TcpControlPlane&)>;

  explicit Meeting(int size, std::chrono::milliseconds deadline = std::chrono::seconds{20})
      : Meeting{size, deadline, deadline} {}
  Meeting(int size, std::chrono::milliseconds deadline, std::chrono::milliseconds patience)
      : size_{size},
        deadline_{deadline},
        patience_{patience},
        errors_(static_cast<std::size_t>(size)) {}
  ~Meeting() { join(); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }

  void start(const comm::JobPlace& place, const Body& body) {
    threads_.emplace_back([this, place, body] {
      try {
        comm::TcpControlPlane control{place, patience_, deadline_};
        body(control);
      } catch (...) { errors_[static_cast<std::size_t>(place.rank)] = std::current_exception(); }
    });
  }
  void start(int rank, const Body& body) { start(place_of(rank, size_, port_), body); }
  void run(const Body& body) {
    for (int rank = 0; rank < size_; ++rank) { start(rank, body); }
    join();
  }
  void join() {
    for (std::thread& thread : threads_) { thread.join(); }
    threads_.clear();
  }
  /// What rank `rank` threw, empty if nothing.
  [[nodiscard]] std::string error(int rank) const {
    const auto& error = errors_[static_cast<std::size_t>(rank)];
    return error ? comm::text_of(error) : "";
  }
  [[nodiscard]] bool is_echo(int rank) const {
    return tessera::comm::is_echo(errors_[static_cast<std::size_t>(rank)]);
  }

 private:
  int size_;
  std::chrono::milliseconds deadline_;
  std::chrono::milliseconds patience_;
  int port_ = free_port();
  std::vector<std::exception_ptr> errors_;
  std::vector<std::thread> threads_;
};

/// Ends a rank's run; every rank calls this.
inline void end_run(comm::TcpControlPlane& control) {
  (void)control.exchange(comm::CallKind::end, {});
}

/// The code by which ranks compare `batch`.
inline std::string code_of(const Batch& batch) {
  std::string code;
  comm::encode(batch, code);
  return code;
}

/// An all-reduce of `elems`, called "step NUMBER".
inline Batch step(int number, int elems) {
  return Batch{"step " + std::to_string(number)}.all_reduce({nullptr, elems, DType::fp32});
}

}  // namespace tessera::test
