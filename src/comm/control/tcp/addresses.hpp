#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct addrinfo;
struct sockaddr;

namespace tessera::comm {

/// Where rank 0 listens.
struct HostPort {
  std::string host;
  int port = 0;

  /// Returns "127.0.0.1:29500".
  [[nodiscard]] std::string text() const;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept;
};
/// A list of addresses, in the order in which the system says to try them.
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// Returns the addresses of `place.host` as this machine resolves them. Null, with the reason in
/// `why`, if there are none.
[[nodiscard]] Addresses resolve(const HostPort& place, std::string& why);

/// Returns the addresses of this machine's networks: of each interface that is up, in the system's
/// order, without those that reach only this machine or one link.
[[nodiscard]] std::vector<std::string> own_addresses();

/// Returns "192.0.2.7", or an empty text if it is not a host's address.
[[nodiscard]] std::string host_text(const sockaddr& address, std::uint32_t bytes);
/// Returns whether the address reaches more than this machine or one link.
[[nodiscard]] bool is_of_network(const sockaddr& address);
/// Returns whether the address only reaches this machine.
[[nodiscard]] bool is_loopback(const sockaddr& address);
[[nodiscard]] bool is_loopback(const std::string& host);

/// The result for each of several addresses: "192.0.2.7: Connection refused; 192.0.2.8: no answer".
class AddressProblems {
 public:
  void add(const addrinfo& address, const std::string& problem);
  [[nodiscard]] bool empty() const noexcept { return texts_.empty(); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace tessera::comm
