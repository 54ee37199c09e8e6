#pragma once

#include <filesystem>

#include "checkpoint/save_plan.hpp"
#include "checkpoint/tensor_writer.hpp"

namespace tessera {

/// Adds to `writer` the sums of the chunks that begin in this rank's pieces and lie in parts on
/// several ranks, read from the files in `folder`. All ranks must have written and flushed theirs.
void sum_split_chunks(const SavePlan& plan, const std::filesystem::path& folder,
                      TensorWriter& writer);

}  // namespace tessera
