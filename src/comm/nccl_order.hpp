#pragma once

#include <optional>
#include <string>

#include "comm/control/tcp/tcp_control_plane.hpp"

namespace tessera {

/// What the environment may say of how NCCL adds.
struct NcclChoice {
  std::optional<std::string> algorithms;  ///< NCCL_ALGO
  std::optional<std::string> tuner;       ///< NCCL_TUNER_PLUGIN
};

/// For NCCL_ALGO: the user's choice if each of its algorithms adds in an order that is the same in
/// every run on the same machines (ring, tree), "Ring" if there is none. ConfigError, with what to
/// change, if the choice leaves the order open: to switches (NVLS, CollNet), to NCCL (what a list
/// of exceptions leaves), or to a tuner of the user's own.
[[nodiscard]] std::string fixed_nccl_algorithms(const NcclChoice& choice);

/// This process's.
[[nodiscard]] NcclChoice nccl_choice();

/// *Collective.* The communicators that NCCL makes in this process from here on add in a fixed
/// order: WorldOptions::deterministic. CommError, on every rank, if their choices differ.
void fix_nccl_order(TcpControlPlane& control);

}  // namespace tessera
