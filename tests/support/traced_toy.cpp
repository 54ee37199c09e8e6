#include "support/traced_toy.hpp"

#include <mutex>

#include "tessera/world/run.hpp"

namespace tessera::test {

void PrintTo(const Count& count, std::ostream* out) {
  *out << count.calls << " calls, " << count.bytes << " bytes";
}

Traced trace_last_step(const ToyRun& run) {
  Traced traced;
  traced.records.resize(static_cast<std::size_t>(run.ranks));
  traced.submitters.resize(static_cast<std::size_t>(run.ranks));
  WorldOptions options = run.world;
  options.trace = true;
  std::mutex mutex;
  run_ranks(
      run.ranks,
      [&](World& world) {
        ToyModel toy{world, run.options, run.toy};
        toy.model().optimize_with(run.optimizer, {.clip_norm = run.clip_norm});
        for (int step = 0; step < run.steps; ++step) {
          world.barrier();
          world.recorder()->clear();
          for (int micro = 0; micro < run.options.accumulate; ++micro) {
            (void)toy.forward_backward(step, run.toy.batch);
          }
          toy.model().step();
          world.gather_channel().stream.wait();
          world.reduce_channel().stream.wait();
        }
        const std::scoped_lock lock{mutex};
        const auto rank = static_cast<std::size_t>(world.rank());
        traced.records[rank] = world.recorder()->records();
        traced.submitters[rank] = trace::this_thread();
        if (rank != 0) { return; }
        for (std::size_t u = 0; u < toy.model().unit_count(); ++u) {
          const bool root = u == toy.root().index();
          ++traced.units;
          traced.blocks += root ? 0 : 1;
          for (const SegmentLayout& s : toy.model().layout(toy.model().unit(u)).segments()) {
            const auto bytes = 4 * static_cast<std::size_t>(s.padded_elems());
            (root ? traced.root_bytes : traced.blocks_bytes) += bytes;
            traced.segments_of_blocks += root ? 0 : 1;
            if (s.trainable()) {
              (root ? traced.root_gradients : traced.blocks_gradients) += bytes;
            }
          }
        }
      },
      options);
  return traced;
}

Traffic traffic_of(const std::vector<trace::Record>& records) {
  Traffic traffic;
  for (const trace::Record& record : records) {
    if (record.kind != trace::Kind::collective || record.unit == "step") { continue; }
    ++traffic[record.what].calls;
    traffic[record.what].bytes += record.bytes;
  }
  return traffic;
}

std::vector<std::string> issued(const std::vector<trace::Record>& records) {
  std::vector<std::string> events;
  for (const trace::Record& record : records) {
    if (record.kind == trace::Kind::issue) {
      events.push_back(record.unit.empty() ? record.what : record.what + " " + record.unit);
    }
  }
  return events;
}

}  // namespace tessera::test
