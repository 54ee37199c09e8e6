#pragma once

#include <string>
#include <vector>

#include "tessera/trace/recorder.hpp"

namespace tessera {

/// The records of one rank.
struct RankTrace {
  int rank = 0;                        ///< the rank's number in the job
  std::vector<trace::Record> records;  ///< the records of its Recorder, in order
};

/// Returns the records as Chrome trace events (JSON), which ui.perfetto.dev and chrome://tracing
/// open. Each rank is shown as a process. Its spans are in threads named after the streams
/// "compute", "gather" and "reduce" (also "offload", "update" and "host" if it has a host pool),
/// and its instants, in program order, in the thread "issued". Counters show the memory in use, in
/// total and by category. Spans of one stream that overlap without nesting are in two threads of
/// the same name.
///
/// Times count from the earliest record. Clocks of different machines are not aligned. Throws
/// ContractError if a rank appears twice, or if its records release memory that they do not
/// allocate.
[[nodiscard]] std::string perfetto_trace(const std::vector<RankTrace>& ranks);

}  // namespace tessera
