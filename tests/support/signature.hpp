#pragma once

#include <string>
#include <string_view>

#include "comm/batch_text.hpp"
#include "tessera/comm/batch.hpp"

namespace tessera::test {

/// The batch without addresses: its label, then each entry in the form of `describe`, such as
/// "loss: all_reduce of 1 fp64 (sum)".
[[nodiscard]] inline std::string signature(const Batch& batch, int ranks) {
  std::string text = batch.label() + ":";
  std::string_view separator = " ";
  for (const CommOp& op : batch.ops()) {
    text += separator;
    text += comm::describe(op, ranks);
    separator = "; ";
  }
  return text;
}

}  // namespace tessera::test
