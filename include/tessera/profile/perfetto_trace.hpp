#pragma once

#include <string>
#include <vector>

#include "tessera/trace/recorder.hpp"

namespace tessera {

/// What one rank recorded.
struct RankTrace {
  int rank = 0;
  std::vector<trace::Record> records;
};

/// The records as Chrome trace events (JSON), which ui.perfetto.dev and chrome://tracing open: a
/// process for each rank, with threads "compute", "gather" and "reduce" of spans, "issued" of
/// instants in program order, and counters of the memory in use, in all and by category. Spans of
/// one stream that overlap without one holding the other go to a second thread of its name.
///
/// Times are since the earliest record. Ranks on several machines have clocks of their own.
///
/// Errors:  ContractError if a rank appears twice, or its records release what they do not
/// allocate.
[[nodiscard]] std::string perfetto_trace(const std::vector<RankTrace>& ranks);

}  // namespace tessera
