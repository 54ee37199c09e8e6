#pragma once

#include <optional>
#include <string>

#include "comm/control/tcp/tcp_control_plane.hpp"
#include "world/launcher.hpp"

namespace tessera {

/// What the environment of a launched process says beside its number.
struct FoundPlace {
  JobPlace place;                      ///< without the build
  std::optional<int> local_rank = {};  ///< among the processes of this machine
  std::optional<int> local_size = {};  ///< how many those are
};

/// How the processes of `found` meet without MPI: MASTER_ADDR and MASTER_PORT as torchrun sets
/// them; the loopback where all are known to be on one machine, and port 29500, if they are unset.
/// ConfigError that says what to set where the address cannot be known, or a variable is no number.
[[nodiscard]] FoundPlace find_place(const FoundJob& found, const ReadVariable& read);

/// The first name of a list as Slurm writes them: "node07" of "node[07-09,12],gpu1".
[[nodiscard]] std::string first_host(const std::string& list);

}  // namespace tessera
