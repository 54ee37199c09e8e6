// The cost of recording, in time and memory.
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <mutex>

#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/tessera.hpp"

namespace tessera::test::recording_test {
namespace {

constexpr nn::DecoderConfig kNano{.layers = 4, .hidden = 128, .heads = 4, .vocab = 256, .seq = 128};

double cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

/// Trains for some steps and calls `after` after each, on rank 0.
template <class AfterStep>
void train(int ranks, Strategy strategy, const nn::DecoderConfig& model, int steps,
           const WorldOptions& options, const AfterStep& after) {
  run_ranks(
      ranks,
      [&](World& world) {
        auto gpt = shard(nn::Decoder(model), world, {.strategy = strategy});
        gpt.materialize(/*seed=*/1);
        gpt.optimize_with(AdamW{});
        const std::vector<std::int32_t> tokens(static_cast<std::size_t>(2 * model.seq), 3);
        for (int step = 0; step < steps; ++step) {
          gpt.forward_backward(tokens, tokens);
          gpt.step();
          world.barrier();
          if (world.rank() == 0) { after(world); }
          world.barrier();
        }
      },
      options);
}

// The limit is 2 % of a step. The test counts records and measures the cost of one separately, as
// other programs disturb a whole step by more. `tessera bench step --recording` measures both.
TEST(Recording, CostsLittleOfASmallModelsStepTime) {
  std::vector<double> step_ends;
  std::vector<std::size_t> counts;
  train(1, Strategy::zero3, kNano, 4, {.trace = true}, [&](World& world) {
    counts.push_back(world.recorder()->records().size());
    step_ends.push_back(cpu_seconds());
  });
  const auto records_a_step = static_cast<double>(counts[3] - counts[2]);
  const double step_seconds = step_ends[3] - step_ends[2];

  constexpr int kAdded = 20'000;
  trace::Recorder recorder;
  recorder.keep_last(1);
  MemoryTracker tracker{&recorder};
  tracker.add(Category::gather, 1 << 20, "slots", BufferUse::parts);
  tracker.enter(trace::Phase::forward, "a.long.name.of.a.unit.12", 0);
  const double begin = cpu_seconds();
  for (int i = 0; i < kAdded / 2; ++i) {
    const CountedMemory use = tracker.occupy(Category::gather, 1000, "a.long.name.of.a.unit.12");
    if (i % 100 == 0) { recorder.end_step(); }
  }
  const double record_seconds = (cpu_seconds() - begin) / kAdded;
  RecordProperty("records_a_step", static_cast<int>(records_a_step));
  RecordProperty("nanoseconds_a_record", static_cast<int>(record_seconds * 1e9));
  EXPECT_GT(records_a_step, 20);
  EXPECT_LT(records_a_step * record_seconds, 0.02 * step_seconds)
      << records_a_step << " records of " << record_seconds << " s in " << step_seconds << " s";
}

using Held = std::map<std::string, std::int64_t>;

Held in_use_by(const std::vector<trace::Record>& records) {
  Held held;
  for (const trace::Record& record : records) {
    const auto bytes = static_cast<std::int64_t>(record.bytes);
    const bool more = record.kind == trace::Kind::allocate || record.kind == trace::Kind::use;
    const bool less = record.kind == trace::Kind::release || record.kind == trace::Kind::unuse;
    held[record.what] += more ? bytes : less ? -bytes : 0;
    EXPECT_GE(held[record.what], 0) << record.what << " of " << record.unit;
  }
  return held;
}

class RecordedSteps : public ::testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, RecordedSteps, ::testing::ValuesIn(all_strategies()),
                         [](const auto& tested) { return std::string{to_string(tested.param)}; });

TEST_P(RecordedSteps, DoNotGrowAndSumToWhatIsInUse) {
  constexpr nn::DecoderConfig small{.layers = 3, .hidden = 12, .heads = 3, .vocab = 37, .seq = 8};
  std::vector<std::size_t> counts;
  train(2, GetParam(), small, 12, {.trace = true, .trace_steps = 2}, [&](World& world) {
    const std::vector<trace::Record> records = world.recorder()->records();
    counts.push_back(records.size());
    const CategoryBytes in_use = world.memory().report().in_use;
    const Held held = in_use_by(records);
    for (std::size_t c = 0; c < kCategories; ++c) {
      const auto category = static_cast<Category>(c);
      const auto found = held.find(std::string{to_string(category)});
      EXPECT_EQ(found == held.end() ? 0 : found->second,
                static_cast<std::int64_t>(in_use[category]))
          << to_string(category);
    }
  });
  ASSERT_EQ(counts.size(), 12U);
  // Collectives are recorded when they end, possibly a step later.
  EXPECT_LT(counts.back(), counts[4] + counts[4] / 2);
  EXPECT_LT(counts.back(), 6 * counts[0]);
}

}  // namespace
}  // namespace tessera::test::recording_test
