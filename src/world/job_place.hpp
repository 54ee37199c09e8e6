#pragma once

#include <optional>
#include <string>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "world/launcher.hpp"

namespace tessera::world {

/// What the environment of a launched process says besides its number.
struct FoundPlace {
  comm::JobPlace place;                ///< without the build
  std::optional<int> local_rank = {};  ///< among the processes of this machine
  std::optional<int> local_size = {};  ///< the number of these processes
};

/// How the processes of `found` meet without MPI: at MASTER_ADDR and MASTER_PORT as torchrun sets
/// them, or where chosen_meeting() says. If they are unset: the loopback if all are known to be on
/// one machine, and port 29500. Throws ConfigError, with what to set, if the address cannot be
/// known, or a variable is not a number.
[[nodiscard]] FoundPlace find_place(const FoundJob& found, const ReadVariable& read);

/// The host and the port of rank 0 that the user sets for Tessera alone, whatever the launcher:
/// TESSERA_RENDEZVOUS_ADDR and TESSERA_RENDEZVOUS_PORT; empty and 0 if they are unset or
/// empty. Throws ConfigError if they can be no host or port.
[[nodiscard]] comm::HostPort chosen_meeting(const ReadVariable& read);

/// The first name of a list in Slurm's notation: "node07" of "node[07-09,12],gpu1".
[[nodiscard]] std::string first_host(const std::string& list);

}  // namespace tessera::world
