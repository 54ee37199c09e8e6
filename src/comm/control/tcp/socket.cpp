#include "comm/control/tcp/socket.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

// A resolver that takes longer is worth a word.
constexpr std::chrono::milliseconds kSlowResolve{1000};

std::string system_error() {
  return std::generic_category().message(errno);
}

void set(const Socket& socket, int level, int option, int value) noexcept {
  (void)::setsockopt(socket.handle(), level, option, &value, sizeof value);
}

/// Texts are small and a rank waits for them. A machine that disappears silently is noticed by
/// probes if nothing is in transit to it, otherwise by missing acknowledgements, for which TCP
/// would resend for a quarter of an hour.
void tune(const Socket& socket) noexcept {
  constexpr auto silence = static_cast<int>(kSilence.count());
  constexpr int idle = 3;
  set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(socket, IPPROTO_TCP, TCP_KEEPCNT, silence - idle);
  set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 1000 * silence);
}

Socket connect_one(const addrinfo& address, WaitClock& clock, WaitClock::Time end,
                   std::string& why) {
  Socket socket{::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) {
    why = system_error();
    return {};
  }
  if (::connect(socket.handle(), address.ai_addr, address.ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    why = system_error();
    return {};
  }
  if (!wait_for(socket, POLLOUT, clock, std::min(end, clock.now() + kAttempt))) {
    why = "no answer";
    return {};
  }
  int error = 0;
  socklen_t bytes = sizeof error;
  (void)::getsockopt(socket.handle(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  if (error != 0) {
    why = std::generic_category().message(error);
    return {};
  }
  tune(socket);
  return socket;
}

/// A port chosen by the system may be the very one to be reached: nothing listens there, and the
/// socket is connected to itself.
bool is_own_end(const Socket& socket) noexcept {
  sockaddr_storage here{};
  sockaddr_storage there{};
  socklen_t bytes = sizeof here;
  if (::getsockname(socket.handle(), reinterpret_cast<sockaddr*>(&here), &bytes) != 0) {
    return false;
  }
  bytes = sizeof there;
  if (::getpeername(socket.handle(), reinterpret_cast<sockaddr*>(&there), &bytes) != 0) {
    return false;
  }
  return std::memcmp(&here, &there, sizeof here) == 0;
}

}  // namespace

// Events that are already pending are seen after `end` too: a thread that was kept from running
// reports the result of its attempt.
bool wait_for(const Socket& socket, short events, WaitClock& clock, WaitClock::Time end) noexcept {
  for (;;) {
    const auto left = std::min(end - clock.now(), clock.tick());
    pollfd watched{socket.handle(), events, 0};
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    const int ready = ::poll(&watched, 1, static_cast<int>(std::max<std::int64_t>(wait, 0)));
    if (ready > 0) { return true; }
    if (left.count() <= 0 || (ready < 0 && errno != EINTR)) { return false; }
  }
}

Socket::~Socket() {
  if (handle_ >= 0) { ::close(handle_); }
}

std::optional<std::size_t> Socket::send_some(const char* data, std::size_t bytes) noexcept {
  for (;;) {
    const ssize_t sent = ::send(handle_, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) { return static_cast<std::size_t>(sent); }
    if (errno == EAGAIN || errno == EWOULDBLOCK) { return 0; }
    if (errno != EINTR) { return {}; }
  }
}

std::optional<std::size_t> Socket::receive_some(char* data, std::size_t bytes) noexcept {
  for (;;) {
    const ssize_t count = ::recv(handle_, data, bytes, MSG_DONTWAIT);
    if (count > 0) { return static_cast<std::size_t>(count); }
    if (count == 0) { return {}; }
    if (errno == EAGAIN || errno == EWOULDBLOCK) { return 0; }
    if (errno != EINTR) { return {}; }
  }
}

void Socket::end_sending() noexcept {
  (void)::shutdown(handle_, SHUT_WR);
}

void Outbox::clear() noexcept {
  bytes_.clear();
  sent_ = 0;
}

bool Outbox::send_over(Socket& socket) noexcept {
  while (!empty()) {
    const auto sent = socket.send_some(bytes_.data() + sent_, bytes_.size() - sent_);
    if (!sent) {
      clear();
      return false;
    }
    if (*sent == 0) { return true; }
    sent_ += *sent;
  }
  clear();
  return true;
}

Socket accept_from(const Socket& listener) noexcept {
  Socket socket{::accept4(listener.handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
  if (socket) { tune(socket); }
  return socket;
}

bool is_out_of_handles() noexcept {
  return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
}

std::string peer_host(const Socket& socket) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  auto& generic = reinterpret_cast<sockaddr&>(address);
  if (::getpeername(socket.handle(), &generic, &bytes) != 0) { return {}; }
  return host_text(generic, bytes);
}

bool connect_to(const HostPort& place, WaitClock& clock, WaitClock::Time end, std::string& why,
                const TakeConnection& take) {
  const WaitClock::Time begin = clock.now();
  const Addresses addresses = clock.count_all([&] { return resolve(place, why); });
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(clock.now() - begin);
  AddressProblems tried;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Socket socket = connect_one(*each, clock, end, why);
    if (socket && is_own_end(socket)) {
      why = "no program listens there";
    } else if (socket && take(std::move(socket), why)) {
      return true;
    }
    tried.add(*each, why);
  }
  if (!tried.empty()) { why = tried.text(); }
  if (took > kSlowResolve) {
    why += fmt::format("; resolving {} took {} ms", place.host, took.count());
  }
  return false;
}

Socket connect_to(const HostPort& place, WaitClock& clock, WaitClock::Time end, std::string& why) {
  Socket connection;
  (void)connect_to(place, clock, end, why, [&](Socket socket, std::string& /*why*/) {
    connection = std::move(socket);
    return true;
  });
  return connection;
}

std::pair<Socket, Socket> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw Error{fmt::format("a pair of sockets cannot be made: {}", system_error())};
  }
  return {Socket{ends[0]}, Socket{ends[1]}};
}

}  // namespace tessera::comm
