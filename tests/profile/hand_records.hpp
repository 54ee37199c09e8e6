// Handmade records, as a rank's recorder holds them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/trace/recorder.hpp"

namespace tessera::test {

inline trace::Record record(trace::Kind kind, std::string what, std::string unit, std::size_t bytes,
                            std::int64_t step, std::int64_t at_ns, std::string phase,
                            std::string during) {
  trace::Record made;
  made.kind = kind;
  made.what = std::move(what);
  made.unit = std::move(unit);
  made.bytes = bytes;
  made.step = step;
  made.begin_ns = at_ns;
  made.end_ns = at_ns;
  made.phase = std::move(phase);
  made.during = std::move(during);
  return made;
}

inline trace::Record span(std::string stream, std::string what, std::string unit, std::size_t bytes,
                          std::int64_t step, std::int64_t begin_ns, std::int64_t end_ns) {
  const auto kind = stream == "compute" ? trace::Kind::compute : trace::Kind::collective;
  trace::Record made =
      record(kind, std::move(what), std::move(unit), bytes, step, begin_ns, "", "");
  made.end_ns = end_ns;
  if (kind == trace::Kind::compute) {
    made.phase = made.what;
    made.during = made.unit;
  }
  made.stream = std::move(stream);
  return made;
}

/// Two steps of one unit, "fc": its parameters stay allocated, and each step uses one slot of a
/// ring of 600 bytes.
inline std::vector<trace::Record> two_steps() {
  using trace::Kind;
  std::vector<trace::Record> records = {
      record(Kind::allocate, "parameters", "shards", 1000, 0, 1'000'000, "setup", ""),
      record(Kind::allocate, "gather", "ring", 600, 0, 1'000'100, "setup", ""),
      record(Kind::unuse, "gather", "ring", 600, 0, 1'000'200, "setup", ""),
  };
  for (const std::int64_t step : {0, 1}) {
    const std::int64_t t = 2'000'000 + 100'000 * step;
    records.push_back(record(Kind::use, "gather", "fc", 500, step, t, "forward", "fc"));
    records.push_back(record(Kind::issue, "gather", "fc", 0, step, t + 500, "forward", ""));
    records.push_back(record(Kind::issue, "forward", "fc", 0, step, t + 5'000, "forward", ""));
    records.push_back(span("gather", "all_gather", "fc", 750, 0, t + 600, t + 4'900));
    records.push_back(span("compute", "forward", "fc", 0, step, t + 5'000, t + 9'000));
    records.push_back(record(Kind::issue, "backward", "fc", 0, step, t + 10'000, "backward", ""));
    records.push_back(record(Kind::issue, "reshard", "fc", 0, step, t + 19'000, "backward", ""));
    records.push_back(record(Kind::unuse, "gather", "fc", 500, step, t + 20'000, "backward", "fc"));
    records.push_back(span("compute", "backward", "fc", 0, step, t + 10'000, t + 21'000));
    records.push_back(record(Kind::issue, "update", "", 0, step, t + 30'000, "update", ""));
    records.push_back(span("reduce", "reduce_scatter", "fc", 750, 0, t + 22'000, t + 29'000));
    records.push_back(span("compute", "update", "", 0, step, t + 30'000, t + 40'000));
  }
  return records;
}

}  // namespace tessera::test
