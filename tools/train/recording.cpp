#include "tools/train/recording.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tessera/trace/recorder.hpp"

namespace tessera::tools {
namespace {

constexpr std::int64_t kRecordedStep = 3;

nlohmann::json json_of(const trace::Record& r) {
  return {r.kind,     r.what,   r.unit,  r.bytes,  r.step,  r.thread,
          r.begin_ns, r.end_ns, r.phase, r.during, r.stream};
}

trace::Record record_of(const nlohmann::json& values) {
  trace::Record r;
  values.at(0).get_to(r.kind);
  values.at(1).get_to(r.what);
  values.at(2).get_to(r.unit);
  values.at(3).get_to(r.bytes);
  values.at(4).get_to(r.step);
  values.at(5).get_to(r.thread);
  values.at(6).get_to(r.begin_ns);
  values.at(7).get_to(r.end_ns);
  values.at(8).get_to(r.phase);
  values.at(9).get_to(r.during);
  values.at(10).get_to(r.stream);
  return r;
}

std::string text_of(const std::vector<trace::Record>& records) {
  nlohmann::json all = nlohmann::json::array();
  for (const trace::Record& record : records) { all.push_back(json_of(record)); }
  return all.dump();
}

}  // namespace

std::int64_t recorded_step(std::int64_t steps) noexcept {
  return std::min(steps, kRecordedStep);
}

Recording collect_recording(World& world, std::int64_t step, const std::vector<int>& ranks) {
  // Work that this step enqueued may still be running.
  world.compute_stream().wait();
  world.gather_channel().stream.wait();
  world.reduce_channel().stream.wait();
  world.quiesce();  // waits for copies to and from the host pool
  trace::Recorder& recorder = *world.recorder();
  recorder.stop();
  Recording recording{.step = step, .ranks = {}};
  // One rank at a time: an exchange brings every rank's text to every rank.
  for (const int rank : ranks) {
    const bool mine = rank == world.rank();
    const auto texts = world.exchange(mine ? text_of(recorder.records()) : std::string{});
    if (world.rank() != 0) { continue; }
    RankTrace trace{.rank = rank, .records = {}};
    for (const auto& values : nlohmann::json::parse(texts[static_cast<std::size_t>(rank)])) {
      trace.records.push_back(record_of(values));
    }
    recording.ranks.push_back(std::move(trace));
  }
  recorder.clear();
  return recording;
}

}  // namespace tessera::tools
