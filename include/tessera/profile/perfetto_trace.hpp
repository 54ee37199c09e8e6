#pragma once

#include <string>
#include <vector>

#include "tessera/trace/recorder.hpp"

namespace tessera {

/// What one rank recorded.
struct RankTrace {
  int rank = 0;
  std::vector<trace::Record> records;  ///< of its Recorder, in order
};

/// Writes the records as Chrome trace events (JSON), which ui.perfetto.dev and chrome://tracing
/// open. Each rank is a process. Its spans are in threads named after the streams "compute",
/// "gather" and "reduce" ("offload", "update" and "host" too if it has a host pool), and its
/// instants, in program order, in the thread "issued". Counters show the memory in use, in all and
/// by category. Where spans of one stream overlap and neither holds the other, one goes to a second
/// thread of the same name.
///
/// Times count from the earliest record. Ranks on several machines have clocks of their own.
///
/// Errors:  ContractError if a rank appears twice, or if its records release what they do not
///          allocate.
[[nodiscard]] std::string perfetto_trace(const std::vector<RankTrace>& ranks);

}  // namespace tessera
