// Layer inputs kept in the host pool: fewer on the device, the same bits.
#include "nn/decoder_course.hpp"
#include "tessera/world/run.hpp"
#include "tessera/world/simulate.hpp"

namespace tessera::nn::host_boundaries_test {
namespace {

using test::CourseOptions;

constexpr DecoderConfig kDeep{.layers = 6, .hidden = 20, .heads = 2, .vocab = 37, .seq = 11};

std::vector<Recompute> choices() {
  return {Recompute::none(), Recompute::block(), Recompute::every(2) | Recompute::gelu()};
}

TEST(HostBoundaries, ChangeNoBitUnderAnyStrategy) {
  for (const Strategy strategy : all_strategies()) {
    CourseOptions options{.config = kDeep,
                          .gpt = {.dropout = 0.1F},
                          .model = {.strategy = strategy, .accumulate = 2},
                          .ranks = 2};
    const test::Course expected = train_course(options);
    options.gpt.boundaries = Boundaries::host;
    for (const Recompute& recompute : choices()) {
      options.gpt.recompute = recompute;
      EXPECT_EQ(train_course(options), expected) << to_string(strategy) << recompute.describe();
    }
  }
}

// Late copies, poisoned slots, and a compute stream that nothing waits for.
TEST(HostBoundaries, ChangeNoBitHoweverLate) {
  CourseOptions options{.config = kDeep, .model = {.strategy = Strategy::zero3}, .ranks = 2};
  const test::Course expected = train_course(options);
  options.gpt = {.recompute = Recompute::block(), .boundaries = Boundaries::host};
  options.world = {
      .testing = {.poison = SlotPoison::nan,
                  .delays = DelayInjection{.seed = 5, .longest = std::chrono::microseconds{300}},
                  .compute_stream = ComputeStream::worker}};
  EXPECT_EQ(train_course(options), expected);
}

// Each pool's copies have their own stream: layer inputs do not wait for updated parameters.
TEST(HostBoundaries, WithTheOptimizerOnTheHostChangeNoBitHoweverLate) {
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero1, Strategy::zero3}) {
    CourseOptions options{.config = kDeep, .model = {.strategy = strategy}, .ranks = 2};
    options.model.compute = DType::bf16;
    const test::Course expected = train_course(options);
    options.gpt = {.recompute = Recompute::block(), .boundaries = Boundaries::host};
    options.model.offload = Offload::optimizer;
    options.world = {
        .testing = {.poison = SlotPoison::nan,
                    .delays = DelayInjection{.seed = 6, .longest = std::chrono::microseconds{300}},
                    .compute_stream = ComputeStream::worker}};
    EXPECT_EQ(train_course(options), expected) << to_string(strategy);
  }
}

// A forward pass without a backward pass in between, in a model of one layer and of several.
TEST(HostBoundaries, DoNotChangeEvaluation) {
  for (const std::int64_t layers : {1, 2, 6}) {
    CourseOptions options{.config = kDeep};
    options.config.layers = layers;
    const auto losses = [&] {
      std::vector<double> all;
      const auto between = [&](Sharded<Decoder>& gpt) {
        const auto tokens = course_tokens(options, 9, 0, 0, 0);
        all.push_back(gpt.module().evaluate(tokens, tokens));
      };
      const test::Course course = train_course(options, between);
      all.insert(all.end(), course.losses.begin(), course.losses.end());
      return all;
    };
    const std::vector<double> expected = losses();
    options.gpt.boundaries = Boundaries::host;
    EXPECT_EQ(losses(), expected) << layers;
  }
}

// The device keeps three instead of one per layer; the pool keeps all of them.
TEST(HostBoundaries, TakeThreeStreamsOfTheDevice) {
  simulate_rank({.rank = 0, .ranks = 1}, [](World& world) {
    const DecoderConfig config{.layers = 12, .hidden = 64, .heads = 4, .vocab = 256, .seq = 32};
    for (const DType compute : {DType::fp32, DType::bf16}) {
      const auto bytes = [&](Boundaries boundaries) {
        const DecoderOptions options{.recompute = Recompute::block(), .boundaries = boundaries};
        return Decoder::bytes_needed(config, options, 2, world, {.compute = compute});
      };
      const std::size_t stream = 2UL * 32 * 64 * size_of(compute);
      const DecoderBytes device = bytes(Boundaries::device);
      const DecoderBytes host = bytes(Boundaries::host);
      EXPECT_EQ(device.activations - host.activations, (12 - 3) * stream);
      EXPECT_EQ(host.host, 12 * stream);
      EXPECT_EQ(device.host, 0U);
      EXPECT_EQ(host.workspace, device.workspace);
    }
  });
}

struct Held {
  MemoryReport device;
  MemoryReport host;
};

void steps_on(World& world, const CourseOptions& options, Held& held) {
  auto gpt = shard(Decoder(options.config, options.gpt), world, options.model);
  gpt.materialize(3);
  gpt.optimize_with(AdamW{});
  course_step(gpt, world, options, 0);
  course_step(gpt, world, options, 1);
  if (world.rank() == 0) { held = {world.memory().report(), world.host_memory().report()}; }
}

TEST(HostBoundaries, PlannedMemoryIsMeasuredMemory) {
  for (const Strategy strategy : all_strategies()) {
    for (const Recompute& recompute : choices()) {
      const CourseOptions options{.config = kDeep,
                                  .gpt = {.recompute = recompute, .boundaries = Boundaries::host},
                                  .model = {.strategy = strategy},
                                  .ranks = 2};
      Held measured;
      Held planned;
      run_ranks(2, [&](World& world) { steps_on(world, options, measured); });
      simulate_rank({.rank = 0, .ranks = 2},
                    [&](World& world) { steps_on(world, options, planned); });
      EXPECT_EQ(planned.device.peak_bytes, measured.device.peak_bytes) << to_string(strategy);
      EXPECT_EQ(planned.device.at_peak, measured.device.at_peak) << to_string(strategy);
      EXPECT_EQ(planned.device.most_in_use, measured.device.most_in_use) << to_string(strategy);
      EXPECT_EQ(planned.host.peak_bytes, measured.host.peak_bytes) << to_string(strategy);
      EXPECT_GT(measured.host.peak_bytes, 0U);
    }
  }
}

}  // namespace
}  // namespace tessera::nn::host_boundaries_test
