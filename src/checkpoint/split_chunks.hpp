#pragma once

#include <filesystem>

#include "checkpoint/save_plan.hpp"
#include "checkpoint/tensor_writer.hpp"

namespace tessera {

/// Adds to `writer` the sums of chunks that lie in parts on several ranks: of those that begin in
/// this rank's pieces, read from the files in `folder`. All ranks have written and flushed theirs.
void sum_split_chunks(const SavePlan& plan, const std::filesystem::path& folder,
                      TensorWriter& writer);

}  // namespace tessera
