#include "comm/control/tcp/listening.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

constexpr int kBacklog = 1024;
constexpr int kFirstOfAll = 1024;  // lower ports are reserved for the system

/// Returns the errno of the failed call, or 0 if `socket` listens.
int listen_on(Socket& socket, const sockaddr& address, socklen_t bytes) {
  socket = Socket{::socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket) { return errno; }
  const int yes = 1;
  const int no = 0;
  (void)::setsockopt(socket.handle(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (address.sa_family == AF_INET6) {
    (void)::setsockopt(socket.handle(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  }
  if (::bind(socket.handle(), &address, bytes) != 0 || ::listen(socket.handle(), kBacklog) != 0) {
    return errno;
  }
  return 0;
}

template <class Address>
int listen_on(Socket& socket, const Address& address) {
  return listen_on(socket, reinterpret_cast<const sockaddr&>(address), sizeof address);
}

int listen_v6(Socket& socket, const HostPort& place) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<std::uint16_t>(place.port));
  address.sin6_addr = place.host == "::1" ? in6addr_loopback : in6addr_any;
  return listen_on(socket, address);
}

int listen_v4(Socket& socket, const HostPort& place) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(place.port));
  address.sin_addr.s_addr = htonl(is_loopback(place.host) ? INADDR_LOOPBACK : INADDR_ANY);
  if (place.host.rfind("127.", 0) == 0) {
    (void)::inet_pton(AF_INET, place.host.c_str(), &address.sin_addr);
  }
  return listen_on(socket, address);
}

/// Returns 0 if `socket` listens. Otherwise EADDRINUSE if the port is taken on one of this
/// machine's addresses, the last error, or EADDRNOTAVAIL if no address fits. A machine's own name
/// often means its loopback there, and elsewhere the intended address.
int listen_on_one(Socket& socket, const HostPort& place, AddressProblems& tried) {
  std::string why;
  const Addresses addresses = resolve(place, why);
  int problem = EADDRNOTAVAIL;
  for (const addrinfo* each = addresses.get(); each != nullptr; each = each->ai_next) {
    const bool known = each->ai_family == AF_INET || each->ai_family == AF_INET6;
    if (!known || is_loopback(*each->ai_addr)) { continue; }
    const int error = listen_on(socket, *each->ai_addr, each->ai_addrlen);
    if (error == 0) { return 0; }
    tried.add(*each, std::generic_category().message(error));
    if (problem != EADDRINUSE) { problem = error; }
  }
  return problem;
}

std::string refusal_text(const HostPort& place, std::string_view variable, int error,
                         const AddressProblems& tried) {
  std::string what = std::generic_category().message(error);
  if (error == EADDRINUSE) {
    what = fmt::format("another program uses it; set {} to a free one, the same for all ranks",
                       variable);
  } else if (error == EACCES) {
    what += fmt::format("; set {} to {} or more, the same for all ranks", variable, kFirstOfAll);
  }
  return fmt::format("rank 0 cannot listen on port {}, where the ranks are to meet: {}{}",
                     place.port, what,
                     tried.empty() ? "" : fmt::format(" (tried {})", tried.text()));
}

/// The address to which `listener` is bound.
HostPort name_of(const Socket& listener) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  auto& generic = reinterpret_cast<sockaddr&>(address);
  (void)::getsockname(listener.handle(), &generic, &bytes);
  const int port =
      ntohs(generic.sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                          : reinterpret_cast<const sockaddr_in&>(address).sin_port);
  return {host_text(generic, bytes), port};
}

}  // namespace

Socket listen_at(const HostPort& place, std::string_view variable) {
  Socket socket;
  AddressProblems tried;
  int error = is_loopback(place.host) ? EADDRNOTAVAIL : listen_on_one(socket, place, tried);
  if (error == 0) { return socket; }
  const bool v4_only = is_loopback(place.host) && place.host != "::1";
  if (error != EADDRINUSE) { error = v4_only ? EAFNOSUPPORT : listen_v6(socket, place); }
  // A machine may have no IPv6.
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) { error = listen_v4(socket, place); }
  if (error == 0) { return socket; }
  throw ConfigError{refusal_text(place, variable, error, tried)};
}

int port_of(const Socket& listener) {
  return name_of(listener).port;
}

std::string listening_text(const Socket& listener) {
  const HostPort name = name_of(listener);
  if (name.host == "0.0.0.0" || name.host == "::") {
    return fmt::format("port {} of all its addresses", name.port);
  }
  return name.text();
}

}  // namespace tessera::comm
