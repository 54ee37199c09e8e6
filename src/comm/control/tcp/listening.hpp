#pragma once

#include <string>
#include <string_view>

#include "comm/control/tcp/addresses.hpp"
#include "comm/control/tcp/socket.hpp"

namespace tessera::comm {

/// Listens on the first address of `place` that belongs to this machine and whose port is free. If
/// `place` names none of its addresses but the loopback, and is not the loopback itself, it listens
/// on all addresses: others know this machine by an address that it does not know. Port 0 is a free
/// one. Throws ConfigError, listing each address tried, if the port is taken or not permitted;
/// `variable` sets the port.
[[nodiscard]] Socket listen_at(const HostPort& place, std::string_view variable = "MASTER_PORT");
/// The listener's port.
[[nodiscard]] int port_of(const Socket& listener);
/// "192.0.2.7:29500", or "port 29500 of all its addresses".
[[nodiscard]] std::string listening_text(const Socket& listener);

}  // namespace tessera::comm
