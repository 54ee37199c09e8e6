#include "comm/control/tcp/addresses.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>

namespace tessera::comm {
namespace {

/// Returns whether `address` is in 169.254/16.
bool is_link_local(const sockaddr_in& address) {
  constexpr std::uint32_t kLinkLocal = 169U << 8U | 254U;
  return ntohl(address.sin_addr.s_addr) >> 16U == kLinkLocal;
}

/// Whether other machines may reach this address. An interface of the loopback's kind can have
/// addresses outside 127/8, which they cannot reach.
bool reaches_others(const ifaddrs& each) {
  return (each.ifa_flags & IFF_UP) != 0 && (each.ifa_flags & IFF_LOOPBACK) == 0 &&
         each.ifa_addr != nullptr && is_of_network(*each.ifa_addr);
}

}  // namespace

std::string HostPort::text() const {
  return host.find(':') == std::string::npos ? fmt::format("{}:{}", host, port)
                                             : fmt::format("[{}]:{}", host, port);
}

void FreeAddresses::operator()(addrinfo* list) const noexcept {
  ::freeaddrinfo(list);
}

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

std::vector<std::string> own_addresses() {
  std::vector<std::string> texts;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) { return texts; }
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (!reaches_others(*each)) { continue; }
    const bool v6 = each->ifa_addr->sa_family == AF_INET6;
    texts.push_back(host_text(*each->ifa_addr, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in)));
  }
  ::freeifaddrs(list);
  return texts;
}

std::string host_text(const sockaddr& address, std::uint32_t bytes) {
  std::array<char, NI_MAXHOST> text{};
  const int status =
      ::getnameinfo(&address, bytes, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return status == 0 ? text.data() : "";
}

bool is_of_network(const sockaddr& address) {
  if (is_loopback(address)) { return false; }
  if (address.sa_family == AF_INET) {
    return !is_link_local(reinterpret_cast<const sockaddr_in&>(address));
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) == 0;
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(v4.sin_addr.s_addr) >> 24U == IN_LOOPBACKNET;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

void AddressProblems::add(const addrinfo& address, const std::string& problem) {
  texts_.push_back(fmt::format("{}: {}", host_text(*address.ai_addr, address.ai_addrlen), problem));
}

std::string AddressProblems::text() const {
  return fmt::format("{}", fmt::join(texts_, "; "));
}

}  // namespace tessera::comm
