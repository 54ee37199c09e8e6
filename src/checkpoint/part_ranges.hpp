#pragma once

#include <string>
#include <vector>

#include "checkpoint/part.hpp"

namespace tessera::checkpoint {

/// Returns `ranges` in ascending order in each file, without empty ones, and with adjacent ones
/// merged.
[[nodiscard]] std::vector<PartRange> merged(std::vector<PartRange> ranges);

/// Returns a text for other ranks, with one range a line.
[[nodiscard]] std::string text_of(const std::vector<PartRange>& ranges);
/// The inverse of text_of.
[[nodiscard]] std::vector<PartRange> ranges_of(const std::string& text);

}  // namespace tessera::checkpoint
