#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "comm/control/tcp/addresses.hpp"

namespace tessera {

/// Within this time a connection is lost whose other end's machine does not answer any more.
inline constexpr std::chrono::seconds kSilence{6};

/// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int handle) noexcept : handle_{handle} {}
  Socket(Socket&& other) noexcept : handle_{std::exchange(other.handle_, -1)} {}
  Socket& operator=(Socket other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Socket();

  [[nodiscard]] int handle() const noexcept { return handle_; }
  [[nodiscard]] explicit operator bool() const noexcept { return handle_ >= 0; }

  /// Sends what goes without waiting; how many bytes went, nothing if the connection is lost.
  [[nodiscard]] std::optional<std::size_t> send_some(const char* data, std::size_t bytes) noexcept;
  /// Reads what is there, up to `bytes`; 0 if nothing is, nothing at all if the connection is lost.
  [[nodiscard]] std::optional<std::size_t> receive_some(char* data, std::size_t bytes) noexcept;
  /// The other end reads to the end of what was sent, and then sees that there is no more.
  void end_sending() noexcept;

 private:
  int handle_ = -1;
};

/// What is to be sent and has not gone yet.
class Outbox {
 public:
  /// To append to.
  [[nodiscard]] std::string& bytes() noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return sent_ == bytes_.size(); }
  void clear() noexcept;
  /// Sends what goes without waiting; false if the connection is lost.
  [[nodiscard]] bool send_over(Socket& socket) noexcept;

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
};

/// A connection of `listener`'s that is waiting, if there is one.
[[nodiscard]] Socket accept_from(const Socket& listener) noexcept;
/// Why there was none, asked at once: the process or the system has no handle left.
[[nodiscard]] bool is_out_of_handles() noexcept;
/// The address of the other end, empty if the connection is lost.
[[nodiscard]] std::string peer_host(const Socket& socket);
/// Whether a connection is the right one; if not, why.
using TakeConnection = std::function<bool(Socket connection, std::string& why)>;
/// Tries each of the addresses of `place` once, until one is taken or `end`. False, with what came
/// of each address in `why`, if none was.
[[nodiscard]] bool connect_to(const HostPort& place, std::chrono::steady_clock::time_point end,
                              std::string& why, const TakeConnection& take);
/// Takes the first; an empty socket if there is none.
[[nodiscard]] Socket connect_to(const HostPort& place, std::chrono::steady_clock::time_point end,
                                std::string& why);
/// Two ends of a connection within this process.
[[nodiscard]] std::pair<Socket, Socket> socket_pair();

}  // namespace tessera
