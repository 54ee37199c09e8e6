#pragma once

#include <string>

#include "comm/control/tcp/addresses.hpp"
#include "comm/control/tcp/socket.hpp"

namespace tessera {

/// Listens on the first of the addresses that `place` names which is this machine's and has the
/// port free. On all of the machine's where `place` names none of them but the loopback, without
/// being that itself: others know this machine by an address that it does not know.
/// ConfigError, with each address that was tried, if the port is taken, or may not be used.
[[nodiscard]] Socket listen_at(const HostPort& place);
/// "192.0.2.7:29500", or "port 29500 of all its addresses".
[[nodiscard]] std::string listening_text(const Socket& listener);

}  // namespace tessera
