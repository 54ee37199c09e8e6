#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/local/local_group.hpp"

namespace tessera {

/// *Collective.* Every rank's `message`, by rank: the `sequence`-th exchange of a channel.
[[nodiscard]] std::vector<std::string> exchange_texts(LocalGroup& group,
                                                      const std::shared_ptr<LocalChannel>& channel,
                                                      int rank, std::uint64_t sequence,
                                                      const std::string& message);

}  // namespace tessera
