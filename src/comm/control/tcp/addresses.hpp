#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct addrinfo;
struct sockaddr;

namespace tessera {

/// Where rank 0 listens.
struct HostPort {
  std::string host;
  int port = 0;

  /// "127.0.0.1:29500".
  [[nodiscard]] std::string text() const;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const noexcept;
};
/// A list, in the order in which the system says that they are to be tried.
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

/// What `place.host` stands for on this machine. Null, with the reason in `why`, if for nothing.
[[nodiscard]] Addresses resolve(const HostPort& place, std::string& why);

/// "192.0.2.7". Empty if it is no address of a host.
[[nodiscard]] std::string host_text(const sockaddr& address, std::uint32_t bytes);
/// Whether nobody but this machine reaches itself by it.
[[nodiscard]] bool is_loopback(const sockaddr& address);
[[nodiscard]] bool is_loopback(const std::string& host);

/// What came of each of several addresses: "192.0.2.7: Connection refused; 192.0.2.8: no answer".
class AddressProblems {
 public:
  void add(const addrinfo& address, const std::string& problem);
  [[nodiscard]] bool empty() const noexcept { return texts_.empty(); }
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::string> texts_;
};

}  // namespace tessera
