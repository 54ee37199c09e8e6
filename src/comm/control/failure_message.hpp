#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/job_end.hpp"

namespace tessera {

/// The message about a failure that ranks send each other where no coordinator passes it on.
struct FailureMessage {
  std::int32_t status = kCommStatus;
  std::vector<int> missing =
      {};  ///< The ranks that the sender waits for; empty if the sender has failed.
  std::int32_t after_deadline = 0;
  std::string text = {};
};

/// Returns the message as bytes. Their number is bounded: a very long list of ranks and a long text
/// are cut off.
[[nodiscard]] std::string encode(const FailureMessage& said);
/// Returns the message that `bytes` hold. Bytes that hold no message count as one of a failed rank.
[[nodiscard]] FailureMessage decode_failure(std::string_view bytes);

}  // namespace tessera
