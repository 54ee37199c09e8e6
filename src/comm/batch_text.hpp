#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "comm/control/rank_names.hpp"
#include "tessera/comm/batch.hpp"

namespace tessera::comm {

/// One entry without addresses: "reduce of 12 fp32 (sum, root 1)". Two entries match in a
/// collective exactly if these texts are equal.
[[nodiscard]] std::string describe(const CommOp& op, int ranks);

/// The name of a batch in errors: `all_gather and 2 more of batch "gather h.0"`.
[[nodiscard]] std::string describe(const Batch& batch);

/// Compares what the ranks issued under one sequence number (`batches` by rank). Empty if all
/// agree; otherwise describes the first differing entry: "entry 1 of batch "x": rank 2 issued ...
/// where rank 0 issued ...". `name_of` names the ranks.
[[nodiscard]] std::optional<std::string> first_difference(std::span<const Batch* const> batches,
                                                          const NameOfRank& name_of);

}  // namespace tessera::comm
