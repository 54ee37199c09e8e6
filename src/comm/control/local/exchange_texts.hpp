#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/control/local/local_ranks.hpp"

namespace tessera::comm {

/// *Collective.* Every rank's `message`, by rank, in exchange number `sequence` of a channel.
[[nodiscard]] std::vector<std::string> exchange_texts(LocalRanks& ranks,
                                                      const std::shared_ptr<LocalChannel>& channel,
                                                      int rank, std::uint64_t sequence,
                                                      const std::string& message);

}  // namespace tessera::comm
