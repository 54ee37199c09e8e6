#pragma once

#include <cstdint>
#include <filesystem>

#include "checkpoint/save_plan.hpp"
#include "checkpoint/tensor_writer.hpp"

namespace tessera::checkpoint {

/// What `piece` adds to SavePlan::split_balance.
[[nodiscard]] std::uint64_t balance_of_splits(const PlannedPiece& piece,
                                              const CheckpointLayout& layout);

/// Adds to `writer` the sums of the chunks that begin in this rank's pieces and lie in parts on
/// several ranks, read from the files in `folder`. All of those ranks must have written and flushed
/// theirs, into that folder.
void sum_split_chunks(const SavePlan& plan, const std::filesystem::path& folder,
                      TensorWriter& writer);

}  // namespace tessera::checkpoint
