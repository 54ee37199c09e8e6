#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/job_end.hpp"

namespace tessera {

/// What ranks tell each other of a failure where no coordinator passes it on.
struct FailureMessage {
  std::int32_t status = kCommStatus;
  std::vector<int> missing = {};  ///< The ranks that its sender waits for; empty if it has failed.
  std::int32_t after_deadline = 0;
  std::string text = {};
};

/// Returns the message as bytes. Their number is bounded: of very many ranks the first are named,
/// and a long text is cut off.
[[nodiscard]] std::string encode(const FailureMessage& said);
/// Returns the message that `bytes` hold. Bytes that hold none count as the message of a rank that
/// has failed.
[[nodiscard]] FailureMessage decode_failure(std::string_view bytes);

}  // namespace tessera
