#include "profile/device_time.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>

#include "profile/records.hpp"

namespace tessera::profile {
namespace {

using trace::Kind;
using trace::Record;

struct Span {
  std::int64_t begin_ns;
  std::int64_t end_ns;
};

/// An instant that opens the scope of a span on the compute stream.
struct Opening {
  std::size_t instant;  // index among the instants
  std::int64_t host_ns;
  std::int64_t step;
  Span span;
};

class Spans {
 public:
  explicit Spans(const std::vector<Record>& records) {
    for (const Record& record : records) {
      if (record.kind != Kind::compute) { continue; }
      of_[key(record)].push_back({record.begin_ns, record.end_ns});
    }
    for (auto& [name, spans] : of_) { std::ranges::sort(spans, {}, &Span::begin_ns); }
  }

  [[nodiscard]] std::vector<Opening> openings(const std::vector<Record*>& instants) {
    std::vector<Opening> all;
    for (std::size_t i = 0; i < instants.size(); ++i) {
      const Record& record = *instants[i];
      if (record.kind != Kind::issue || record.what != record.phase) { continue; }
      std::deque<Span>& spans = of_[key(record)];
      if (spans.empty()) { continue; }
      all.push_back({i, record.begin_ns, record.step, spans.front()});
      spans.pop_front();
    }
    return all;
  }

 private:
  using Key = std::tuple<std::int64_t, std::string, std::string>;
  static Key key(const Record& record) { return {record.step, record.what, record.unit}; }

  std::map<Key, std::deque<Span>> of_;
};

std::vector<Record*> instants_of(std::vector<Record>& records) {
  std::vector<Record*> instants;
  for (Record& record : records) {
    if (!is_span(record)) { instants.push_back(&record); }
  }
  std::ranges::stable_sort(instants, {}, &Record::begin_ns);
  return instants;
}

}  // namespace

std::vector<Record> in_device_time(std::vector<Record> records) {
  const std::vector<Record*> instants = instants_of(records);
  const std::vector<Opening> openings = Spans{records}.openings(instants);
  if (openings.empty()) { return records; }
  std::size_t next = 0;
  const Opening* open = &openings.front();  // earlier instants move with it
  std::int64_t last = instants.front()->begin_ns;
  for (std::size_t i = 0; i < instants.size(); ++i) {
    Record& record = *instants[i];
    std::int64_t at = record.begin_ns + open->span.begin_ns - open->host_ns;
    if (next < openings.size() && openings[next].instant == i) {
      open = &openings[next++];
      at = open->span.begin_ns;
    } else {
      // The next step begins when this step's update has ended.
      if (next > 0 && record.step > open->step) { at = std::max(at, open->span.end_ns); }
      if (next < openings.size()) { at = std::min(at, openings[next].span.begin_ns); }
    }
    last = std::max(at, last);
    record.begin_ns = last;
    record.end_ns = last;
  }
  return records;
}

}  // namespace tessera::profile
