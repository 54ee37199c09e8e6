#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "comm/control/tcp/addresses.hpp"
#include "comm/control/wait_clock.hpp"

namespace tessera::comm {

/// A connection counts as lost once the machine at its other end has not answered for this long.
inline constexpr std::chrono::seconds kSilence{6};

/// How long one of several addresses keeps a rank from the next: it may silently drop what is sent
/// to it.
inline constexpr std::chrono::milliseconds kAttempt{3000};

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

  /// Sends what can be sent without waiting. Returns the number of bytes sent, or nothing if the
  /// connection is lost.
  [[nodiscard]] std::optional<std::size_t> send_some(const char* data, std::size_t bytes) noexcept;
  /// Reads available bytes, up to `bytes`. Returns their number, which may be 0, or nothing if the
  /// connection is lost.
  [[nodiscard]] std::optional<std::size_t> receive_some(char* data, std::size_t bytes) noexcept;
  /// Ends this direction: the other end reads what was sent, and then sees the end.
  void end_sending() noexcept;

 private:
  int handle_ = -1;
};

/// Bytes that are still to be sent.
class Outbox {
 public:
  /// Returns the bytes, to append messages to.
  [[nodiscard]] std::string& bytes() noexcept { return bytes_; }
  [[nodiscard]] bool empty() const noexcept { return sent_ == bytes_.size(); }
  void clear() noexcept;
  /// Sends what can be sent without waiting. Returns false if the connection is lost.
  [[nodiscard]] bool send_over(Socket& socket) noexcept;

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
};

/// Returns a connection pending at `listener`, or an empty socket if there is none.
[[nodiscard]] Socket accept_from(const Socket& listener) noexcept;
/// Returns, right after accept_from found no connection, whether the process or the system has no
/// handle left.
[[nodiscard]] bool is_out_of_handles() noexcept;
/// Returns the address of the other end, or an empty text if the connection is lost.
[[nodiscard]] std::string peer_host(const Socket& socket);
/// Returns whether a connection is the right one; if not, sets `why` to the reason.
using TakeConnection = std::function<bool(Socket connection, std::string& why)>;
/// Waits until there is one of `events` (POLLIN, POLLOUT); returns false at `end`.
[[nodiscard]] bool wait_for(const Socket& socket, short events, WaitClock& clock,
                            WaitClock::Time end) noexcept;
/// Tries each address of `place` once, until `take` accepts a connection or `end` passes. Returns
/// false, with the result of each address in `why`, if none was accepted.
[[nodiscard]] bool connect_to(const HostPort& place, WaitClock& clock, WaitClock::Time end,
                              std::string& why, const TakeConnection& take);
/// Returns the first connection, or an empty socket if there is none.
[[nodiscard]] Socket connect_to(const HostPort& place, WaitClock& clock, WaitClock::Time end,
                                std::string& why);
/// Returns the two ends of a connection within this process.
[[nodiscard]] std::pair<Socket, Socket> socket_pair();

}  // namespace tessera::comm
