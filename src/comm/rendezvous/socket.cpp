#include "comm/rendezvous/socket.hpp"

#include <arpa/inet.h>
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
#include <memory>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBacklog = 1024;
// One address of several may swallow what is sent to it.
constexpr std::chrono::milliseconds kAttempt{3000};

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::string system_error() {
  return std::generic_category().message(errno);
}

/// Null, with the reason in `why`, if the name stands for nothing.
Addresses resolve(const HostPort& place, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const std::string port = fmt::format("{}", place.port);
  const int status = ::getaddrinfo(place.host.c_str(), port.c_str(), &hints, &list);
  if (status == 0) { return Addresses{list}; }
  why = fmt::format("the host {} is not known: {}", place.host, ::gai_strerror(status));
  return {};
}

void set(const Socket& socket, int level, int option, int value) noexcept {
  (void)::setsockopt(socket.handle(), level, option, &value, sizeof value);
}

/// Texts are small and waited for; a machine that goes away without a word is noticed: by probes
/// where nothing is under way to it, else by what it does not acknowledge, which TCP would send
/// again for a quarter of an hour.
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

Socket make_socket(int family) {
  return Socket{::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

/// The errno of what failed, 0 if the socket listens.
template <class Address>
int listen_with(Socket& socket, const Address& address) {
  set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.handle(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.handle(), kBacklog) != 0) {
    return errno;
  }
  return 0;
}

int listen_v6(Socket& socket, const HostPort& place) {
  socket = make_socket(AF_INET6);
  if (!socket) { return errno; }
  set(socket, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(place.port));
  address.sin6_addr = place.host == "::1" ? in6addr_loopback : in6addr_any;
  return listen_with(socket, address);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* const v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24U == IN_LOOPBACKNET;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr) != 0;
}

/// The errno of what failed last, EADDRNOTAVAIL where no address fits. A machine's own name often
/// stands for its loopback there, and elsewhere for the address that is meant.
int listen_on_one(Socket& socket, const HostPort& place) {
  std::string why;
  const Addresses addresses = resolve(place, why);
  int error = EADDRNOTAVAIL;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const bool known = each->ai_family == AF_INET || each->ai_family == AF_INET6;
    if (!known || is_loopback(each->ai_addr)) { continue; }
    socket = make_socket(each->ai_family);
    if (!socket) { continue; }
    set(socket, SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(socket.handle(), each->ai_addr, each->ai_addrlen) == 0 &&
        ::listen(socket.handle(), kBacklog) == 0) {
      return 0;
    }
    error = errno;
    if (error == EADDRINUSE) { break; }
  }
  return error;
}

int listen_v4(Socket& socket, const HostPort& place) {
  socket = make_socket(AF_INET);
  if (!socket) { return errno; }
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(place.port));
  address.sin_addr.s_addr = htonl(is_loopback(place.host) ? INADDR_LOOPBACK : INADDR_ANY);
  if (place.host.rfind("127.", 0) == 0) {
    (void)::inet_pton(AF_INET, place.host.c_str(), &address.sin_addr);
  }
  return listen_with(socket, address);
}

/// Waits for `events`; false at `end`.
bool wait_for(const Socket& socket, short events, Clock::time_point end) noexcept {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) { return false; }
    pollfd watched{socket.handle(), events, 0};
    const int ready = ::poll(&watched, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000)));
    if (ready > 0) { return true; }
    if (ready < 0 && errno != EINTR) { return false; }
  }
}

Socket connect_one(const addrinfo& address, Clock::time_point end, std::string& why) {
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
  if (!wait_for(socket, POLLOUT, std::min(end, Clock::now() + kAttempt))) {
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

/// A port of the system's choice may be the very one that is to be reached: nobody listens there,
/// and the connection is of this socket to itself.
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

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

Socket listen_at(const HostPort& place) {
  Socket socket;
  int error = is_loopback(place.host) ? EADDRNOTAVAIL : listen_on_one(socket, place);
  if (error == 0) { return socket; }
  const bool v4_only = is_loopback(place.host) && place.host != "::1";
  if (error != EADDRINUSE) { error = v4_only ? EAFNOSUPPORT : listen_v6(socket, place); }
  // A machine may have no IPv6.
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) { error = listen_v4(socket, place); }
  if (error == 0) { return socket; }
  if (error == EADDRINUSE) {
    throw ConfigError{fmt::format(
        "rank 0 cannot listen on port {}, where the ranks are to meet: another program does; set "
        "MASTER_PORT to a free one, the same for all ranks",
        place.port)};
  }
  throw ConfigError{fmt::format("rank 0 cannot listen on port {}, where the ranks are to meet: {}",
                                place.port, std::generic_category().message(error))};
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
  std::array<char, NI_MAXHOST> text{};
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  if (::getpeername(socket.handle(), generic, &bytes) != 0 ||
      ::getnameinfo(generic, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return text.data();
}

Socket connect_to(const HostPort& place, Clock::time_point end, std::string& why) {
  const Addresses addresses = resolve(place, why);
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    Socket socket = connect_one(*each, end, why);
    if (!socket) { continue; }
    if (!is_own_end(socket)) { return socket; }
    why = "nobody listens there";
  }
  return {};
}

std::pair<Socket, Socket> socket_pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw Error{fmt::format("cannot make a pair of sockets: {}", system_error())};
  }
  return {Socket{ends[0]}, Socket{ends[1]}};
}

}  // namespace tessera
