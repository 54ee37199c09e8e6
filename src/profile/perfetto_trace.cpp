#include "tessera/profile/perfetto_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "profile/records.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using profile::is_memory;
using profile::is_span;
using profile::Progress;
using trace::Kind;
using trace::Record;

constexpr std::array<std::string_view, 6> kStreams{"compute", "gather", "reduce",
                                                   "offload", "update", "host"};
constexpr std::size_t kAlwaysShown = 3;  // the others only if there is a host pool
// Thread numbers: ten for each stream, so that its further lanes are shown below it.
constexpr int kLanes = 10;
constexpr int kIssued = 1;
constexpr int kFirstStream = 10;

class Writer {
 public:
  explicit Writer(std::int64_t origin_ns) noexcept : origin_ns_{origin_ns} {}

  void write(const Json& event) {
    text_ += text_.empty() ? "\n" : ",\n";
    text_ += event.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  [[nodiscard]] double microseconds(std::int64_t ns) const {
    return static_cast<double>(ns - origin_ns_) / 1000;
  }
  [[nodiscard]] std::string document() const {
    return R"({"displayTimeUnit":"ms","traceEvents":[)" + text_ + "\n]}\n";
  }

 private:
  std::int64_t origin_ns_;
  std::string text_;
};

std::int64_t earliest(const std::vector<RankTrace>& ranks) {
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const RankTrace& rank : ranks) {
    for (const Record& record : rank.records) { first = std::min(first, record.begin_ns); }
  }
  return first;
}

Json metadata(std::string_view what, int rank, int thread, const Json& args) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", args}};
}

void name_thread(Writer& out, int rank, int thread, const std::string& name) {
  out.write(metadata("thread_name", rank, thread, {{"name", name}}));
  out.write(metadata("thread_sort_index", rank, thread, {{"sort_index", thread}}));
}

void name_process(Writer& out, int rank) {
  out.write(metadata("process_name", rank, 0, {{"name", fmt::format("rank {}", rank)}}));
  out.write(metadata("process_sort_index", rank, 0, {{"sort_index", rank}}));
}

std::string title_of(const Record& record) {
  return record.unit.empty() ? record.what : record.what + " " + record.unit;
}

/// Spans that are disjoint or nested.
struct Lane {
  std::vector<const Record*> spans;
  std::vector<std::int64_t> open;  // the ends of the spans open at this moment, innermost last

  bool take(const Record& record) {
    while (!open.empty() && open.back() <= record.begin_ns) { open.pop_back(); }
    if (!open.empty() && open.back() < record.end_ns) { return false; }
    open.push_back(record.end_ns);
    spans.push_back(&record);
    return true;
  }
};

std::vector<Lane> lanes_of(const std::vector<Record>& records, std::string_view stream) {
  std::vector<const Record*> spans;
  for (const Record& record : records) {
    if (is_span(record) && record.stream == stream) { spans.push_back(&record); }
  }
  // Of two that begin together, the longer contains the other.
  std::stable_sort(spans.begin(), spans.end(), [](const Record* a, const Record* b) {
    return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
  });
  std::vector<Lane> lanes(1);
  for (const Record* span : spans) {
    const bool taken =
        std::any_of(lanes.begin(), lanes.end(), [&](Lane& lane) { return lane.take(*span); });
    if (!taken) { lanes.emplace_back().take(*span); }
  }
  return lanes;
}

Json span_event(const Writer& out, const Record& record, int rank, int thread) {
  Json args = {{"unit", record.unit}};
  if (record.kind == Kind::compute) { args["step"] = record.step + 1; }  // other kinds have no step
  if (record.bytes > 0) { args[record.kind == Kind::copy ? "bytes" : "sent_bytes"] = record.bytes; }
  return {{"name", title_of(record)},
          {"cat", record.what},
          {"ph", "X"},
          {"pid", rank},
          {"tid", thread},
          {"ts", out.microseconds(record.begin_ns)},
          {"dur", static_cast<double>(record.end_ns - record.begin_ns) / 1000},
          {"args", args}};
}

void write_stream(Writer& out, const RankTrace& trace, std::size_t stream) {
  const std::vector<Lane> lanes = lanes_of(trace.records, kStreams[stream]);
  if (stream >= kAlwaysShown && lanes.front().spans.empty()) { return; }
  const int first = kFirstStream + kLanes * static_cast<int>(stream);
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    const int thread = first + std::min(static_cast<int>(i), kLanes - 1);
    const std::string name{kStreams[stream]};
    name_thread(out, trace.rank, thread, i == 0 ? name : fmt::format("{} ({})", name, i + 1));
    for (const Record* span : lanes[i].spans) {
      out.write(span_event(out, *span, trace.rank, thread));
    }
  }
}

void write_issued(Writer& out, const RankTrace& trace) {
  name_thread(out, trace.rank, kIssued, "issued");
  for (const Record& record : trace.records) {
    if (record.kind != Kind::issue) { continue; }
    out.write({{"name", title_of(record)},
               {"cat", "issue"},
               {"ph", "i"},
               {"s", "t"},
               {"pid", trace.rank},
               {"tid", kIssued},
               {"ts", out.microseconds(record.begin_ns)},
               {"args", {{"step", record.step + 1}}}});
  }
}

Json counter(const Writer& out, std::string_view name, int rank, std::int64_t at_ns, Json values) {
  return {{"name", name},
          {"ph", "C"},
          {"pid", rank},
          {"ts", out.microseconds(at_ns)},
          {"args", values}};
}

std::vector<Category> categories_in(const std::vector<Record>& records) {
  std::vector<Category> present;
  for (std::size_t c = 0; c < kCategories; ++c) {
    const auto name = to_string(static_cast<Category>(c));
    const bool seen = std::any_of(records.begin(), records.end(),
                                  [&](const Record& r) { return is_memory(r) && r.what == name; });
    if (seen) { present.push_back(static_cast<Category>(c)); }
  }
  return present;
}

void write_memory(Writer& out, const RankTrace& trace) {
  const std::vector<Category> categories = categories_in(trace.records);
  Progress progress;
  CategoryBytes written;
  for (std::size_t i = 0; i < trace.records.size(); ++i) {
    const Record& record = trace.records[i];
    progress.apply(record);
    const bool half =
        i + 1 < trace.records.size() && profile::one_change(record, trace.records[i + 1]);
    if (half || progress.in_use() == written) { continue; }
    written = progress.in_use();
    Json values;
    for (const Category category : categories) {
      values[std::string{to_string(category)}] = written[category];
    }
    out.write(
        counter(out, "memory in use", trace.rank, record.begin_ns, {{"bytes", written.total()}}));
    out.write(counter(out, "in use by category", trace.rank, record.begin_ns, std::move(values)));
  }
}

void require_distinct(const std::vector<RankTrace>& ranks) {
  std::set<int> seen;
  for (const RankTrace& trace : ranks) {
    if (!seen.insert(trace.rank).second) {
      throw ContractError{fmt::format("rank {} appears twice in the trace", trace.rank)};
    }
  }
}

}  // namespace

std::string perfetto_trace(const std::vector<RankTrace>& ranks) {
  require_distinct(ranks);
  Writer out{earliest(ranks)};
  for (const RankTrace& trace : ranks) {
    name_process(out, trace.rank);
    write_issued(out, trace);
    for (std::size_t stream = 0; stream < kStreams.size(); ++stream) {
      write_stream(out, trace, stream);
    }
    write_memory(out, trace);
  }
  return out.document();
}

}  // namespace tessera
