#pragma once

#include <optional>
#include <string>

#include "comm/control/tcp/tcp_control_plane.hpp"

namespace tessera::comm {

/// Environment settings that affect the order of NCCL's sums.
struct NcclChoice {
  std::optional<std::string> algorithms;  ///< NCCL_ALGO
  std::optional<std::string> tuner;       ///< NCCL_TUNER_PLUGIN
};

/// The value for NCCL_ALGO: the user's choice if each of its algorithms adds in an order that is
/// the same in every run on the same machines (ring, tree), "Ring" without a choice. Throws
/// ConfigError, with what to change, if the choice leaves the order open: to switches (NVLS,
/// CollNet), to NCCL (the rest of a list of exceptions), or to a tuner plugin of the user.
[[nodiscard]] std::string fixed_nccl_algorithms(const NcclChoice& choice);

/// The choice of this process's environment.
[[nodiscard]] NcclChoice nccl_choice();

/// *Collective.* Communicators that NCCL makes in this process from here on add in a fixed order:
/// WorldOptions::deterministic. Throws CommError on every rank if their choices differ.
void fix_nccl_order(TcpControlPlane& control);

}  // namespace tessera::comm
