// Ranks along `pipe` compute, under any schedule, the bits of one rank that runs one micro-batch
// after the other.
#include "tessera/pipeline/pipeline.hpp"

#include <gtest/gtest.h>

#include "pipeline/random_schedule.hpp"
#include "support/rank_job.hpp"
#include "support/stack.hpp"

namespace tessera::pipeline::pipeline_test {
namespace {

using test::stack_on_one_rank;
using test::StackOutcome;

constexpr int kSteps = 2;

Mesh along_pipe(World& world) {
  return {world, {{"pipe", world.size()}}};
}

class PipelineOnRanks : public test::OnRanks {
 protected:
  /// Each process compares its own results.
  static void expect_one_ranks_bits(const Schedule& schedule, const WorldOptions& options = {}) {
    StackOutcome outcome;
    run([&](World& world) { test::run_stack(along_pipe(world), schedule, kSteps, outcome); },
        options);
    const auto expected = stack_on_one_rank(schedule, kSteps, test::rank_device());
    if (!launched_job(test::rank_device())) { ASSERT_EQ(outcome.all().size(), expected.size()); }
    for (const auto& [name, values] : outcome.all()) {
      ASSERT_EQ(values, expected.at(name)) << name << " under " << test::text_of(schedule);
    }
  }
  static std::vector<Schedule> schedules(int micro_batches) {
    std::vector<Schedule> all{gpipe(ranks(), micro_batches),
                              one_forward_one_backward(ranks(), micro_batches),
                              zero_bubble(ranks(), micro_batches)};
    for (const int chunks : {2, 3}) {
      if (micro_batches % ranks() != 0) { continue; }
      all.push_back(interleaved(ranks(), chunks, micro_batches));
    }
    return all;
  }
};
// Fewer on CUDA devices, which are doubles here.
std::vector<int> rank_counts() {
  return test::rank_counts(test::rank_device() == DeviceKind::cuda ? std::vector{2, 3}
                                                                   : std::vector{1, 2, 3, 4});
}
INSTANTIATE_TEST_SUITE_P(Ranks, PipelineOnRanks,
                         testing::Combine(testing::ValuesIn(test::comm_kinds()),
                                          testing::ValuesIn(rank_counts())),
                         test::rank_job_name);

TEST_P(PipelineOnRanks, EveryScheduleHasTheBitsOfOneRank) {
  for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
    for (const Schedule& schedule : schedules(micro_batches)) { expect_one_ranks_bits(schedule); }
  }
}

// Any order that ends may run, with stages on any ranks. Released buffers are overwritten and
// transfers are delayed, so that only events order the work.
TEST_P(PipelineOnRanks, RandomSchedulesEndAndHaveTheBitsOfOneRank) {
  const auto kinds = {ComputeStream::caller, ComputeStream::worker};
  const bool cuda = test::rank_device() == DeviceKind::cuda;
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    WorldOptions options;
    options.testing.poison = seed % 2 == 0 ? SlotPoison::nan : SlotPoison::tiny;
    options.testing.compute_stream = cuda ? ComputeStream::caller : *(kinds.begin() + seed / 2 % 2);
    options.testing.delays =
        DelayInjection{.seed = seed, .longest = std::chrono::microseconds{200}};
    ASSERT_NO_FATAL_FAILURE(expect_one_ranks_bits(random_schedule(ranks(), seed), options));
  }
}

}  // namespace
}  // namespace tessera::pipeline::pipeline_test
