// The host enqueues a step without waiting.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "cuda/emulation.hpp"
#include "cuda/gate.hpp"
#include "cuda/support.hpp"
#include "device/cpu/parallel.hpp"
#include "support/gpt_run.hpp"
#include "support/rounding.hpp"
#include "tessera/world/run.hpp"
#include "world/host_cores.hpp"
#include "world/host_pool.hpp"

namespace tessera::test::step_test {
namespace {

using test::Emulation;

constexpr nn::DecoderConfig kConfig{.layers = 2, .hidden = 10, .heads = 2, .vocab = 17, .seq = 7};

/// CUDA calls that make the host wait for a device, explicitly or implicitly.
constexpr const char* kWaits[] = {"cudaStreamSynchronize",
                                  "cudaDeviceSynchronize",
                                  "cudaEventSynchronize",
                                  "cudaMemcpy",
                                  "cudaMemset",
                                  "cudaMalloc",
                                  "cudaFree",
                                  "cudaMallocHost",
                                  "cudaHostAlloc",
                                  "cudaFreeHost",
                                  "cudaStreamDestroy"};

std::uint64_t waits(Emulation& emulation) {
  return std::accumulate(
      std::begin(kWaits), std::end(kWaits), std::uint64_t{0},
      [&](std::uint64_t sum, const char* call) { return sum + emulation.calls(call); });
}

/// Trains a rank's GPT in steps of two micro-batches.
class Steps {
 public:
  Steps(World& world, Strategy strategy, Offload offload = Offload::none,
        const Optimizer& optimizer = AdamW{}, const nn::DecoderConfig& config = kConfig)
      : gpt_{shard(nn::Decoder{config}, world,
                   {.strategy = strategy, .accumulate = 2, .offload = offload})},
        tokens_(static_cast<std::size_t>(kGPTRunBatch * kConfig.seq)) {
    std::iota(tokens_.begin(), tokens_.end(), 0);
    for (std::int32_t& token : tokens_) { token %= kConfig.vocab; }
    gpt_.materialize(/*seed=*/3);
    gpt_.optimize_with(optimizer, {.clip_norm = 1.0F});
  }
  void one() {
    gradients();
    gpt_.step();
  }
  void gradients() {
    gpt_.forward_backward(tokens_, tokens_);
    gpt_.forward_backward(tokens_, tokens_);
  }
  [[nodiscard]] Sharded<nn::Decoder>& gpt() noexcept { return gpt_; }

 private:
  Sharded<nn::Decoder> gpt_;
  std::vector<std::int32_t> tokens_;
};

class CudaStep : public ::testing::TestWithParam<std::tuple<Strategy, int>> {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
  static WorldOptions on_cuda() {
    WorldOptions options;
    options.device = DeviceKind::cuda;
    return options;
  }
  /// Number of waiting calls of all ranks in three steps, after warm-up steps.
  static std::uint64_t waits_of_steps(Strategy strategy, int ranks,
                                      const std::function<void(World&)>& within = {},
                                      Offload offload = Offload::none) {
    Emulation emulation;
    emulation.set_delay_us(100);  // the device is behind the host
    std::atomic<std::uint64_t> counted = 0;
    run_ranks(
        ranks,
        [&](World& world) {
          Steps steps{world, strategy, offload};
          for (int i = 0; i < 6; ++i) { steps.one(); }
          (void)steps.gpt().report();
          world.barrier();
          const std::uint64_t before = waits(emulation);
          world.barrier();
          for (int i = 0; i < 3; ++i) {
            steps.one();
            if (within && i == 1 && world.rank() == 0) { within(world); }
          }
          world.barrier();
          if (world.rank() == 0) { counted = waits(emulation) - before; }
          world.barrier();
        },
        on_cuda());
    return counted;
  }
};
INSTANTIATE_TEST_SUITE_P(Strategies, CudaStep,
                         ::testing::Combine(::testing::ValuesIn(all_strategies()),
                                            ::testing::Values(1, 3)),
                         [](const auto& test) {
                           return std::string{to_string(std::get<0>(test.param))} + "_" +
                                  std::to_string(std::get<1>(test.param));
                         });

TEST_P(CudaStep, WaitsForNothing) {
  TESSERA_EMULATION_ONLY();
  const auto [strategy, ranks] = GetParam();
  EXPECT_EQ(waits_of_steps(strategy, ranks), 0U);
}

TEST_P(CudaStep, UsesTheGradientsWhoseNormsWereReadAndThatWereMultiplied) {
  const auto [strategy, ranks] = GetParam();
  run_ranks(
      ranks,
      [&, strategy = strategy](World& world) {
        Steps steps{world, strategy};
        ShardedModel& model = steps.gpt().model();
        steps.gradients();
        const auto before = model.gradient_norms();
        EXPECT_EQ(model.gradient_norms(), before) << "a second call changes nothing";
        model.scale_gradient(model.unit(1), "attn.c_attn.weight", 0.5F);
        const auto after = model.gradient_norms();
        double squares = 0.0;
        int halved = 0;
        for (std::size_t u = 0; u < before.size(); ++u) {
          for (std::size_t p = 0; p < before[u].size(); ++p) {
            squares += after[u][p] * after[u][p];
            if (after[u][p] == before[u][p]) { continue; }
            EXPECT_EQ(after[u][p], before[u][p] / 2);
            ++halved;
          }
        }
        EXPECT_EQ(halved, 1);
        steps.gpt().step();
        // bound: the squares of fewer than 100 tensors are added in fp64, in another order
        const double norm = std::sqrt(squares);
        EXPECT_NEAR(steps.gpt().report().grad_norm, norm, 100 * unit_roundoff(DType::fp64) * norm);
      },
      on_cuda());
}

TEST_P(CudaStep, WaitsForNothingWhereStateIsOnTheHost) {
  TESSERA_EMULATION_ONLY();
  const auto [strategy, ranks] = GetParam();
  EXPECT_EQ(waits_of_steps(strategy, ranks, {}, Offload::optimizer), 0U);
  EXPECT_EQ(waits_of_steps(strategy, ranks, {}, Offload::state), 0U);
}

// Two kernels for the norms, one for the step's numbers, one for the updates. A layer has the norms
// of two segments (three kernels each if launched separately) and nine runs to update.
TEST_P(CudaStep, LaunchesFourKernelsHoweverManyLayersThereAre) {
  TESSERA_EMULATION_ONLY();
  const auto [strategy, ranks] = GetParam();
  if (ranks > 1) { GTEST_SKIP() << "ranks that are threads launch kernels of collectives"; }
  for (const int layers : {1, 4}) {
    Emulation emulation;
    run_ranks(
        1,
        [&](World& world) {
          nn::DecoderConfig config = kConfig;
          config.layers = layers;
          Steps steps{world, strategy, Offload::none, AdamW{}, config};
          steps.one();
          steps.gradients();
          const std::uint64_t before = emulation.calls("cudaLaunchKernelEx");
          steps.gpt().step();
          EXPECT_EQ(emulation.calls("cudaLaunchKernelEx") - before, 4U) << layers << " layers";
        },
        on_cuda());
  }
}

// The device copies gradients, parameters, norms and the step's numbers while the host works.
TEST_P(CudaStep, CopiesAnOffloadedOptimizersDataFromAndToPageLockedMemoryAlone) {
  TESSERA_EMULATION_ONLY();
  const auto [strategy, ranks] = GetParam();
  Emulation emulation;
  const auto train = [&](bool pageable) {
    const std::uint64_t before = emulation.pageable_copies();
    run_ranks(
        ranks,
        [&](World& world) {
          Steps steps{world, strategy, Offload::optimizer};
          for (int i = 0; i < 3; ++i) { steps.one(); }
          (void)steps.gpt().report();
          if (!pageable) { return; }
          std::vector<std::byte> bytes(8);
          const Buffer from = world.allocate(Category::workspace, bytes.size(), "from");
          world.device().copy_out(bytes.data(), from.data(), bytes.size(), world.compute_stream());
        },
        on_cuda());
    return emulation.pageable_copies() - before;
  };
  EXPECT_EQ(train(false), 0U);
  EXPECT_EQ(train(true), static_cast<std::uint64_t>(ranks));
}

TEST_P(CudaStep, LeavesNothingOfAnOffloadedOptimizerOnTheDevice) {
  const auto [strategy, ranks] = GetParam();
  run_ranks(
      ranks,
      [&](World& world) {
        Steps steps{world, strategy, Offload::optimizer};
        steps.one();
        const ModelStateBytes state = steps.gpt().model().state_bytes();
        EXPECT_EQ(state.optimizer, 0U);
        EXPECT_EQ(world.memory().report().live[Category::optimizer], 0U);
        const CategoryBytes host = world.host_memory().report().live;
        EXPECT_EQ(state.host == 0, strategy == Strategy::dp && world.rank() > 0);
        EXPECT_LE(state.host, host[Category::optimizer] + host[Category::gradients]);
      },
      on_cuda());
}

TEST_P(CudaStep, OfAnOffloadedOptimizerCannotBeAGraph) {
  const auto [strategy, ranks] = GetParam();
  if (ranks > 1) { GTEST_SKIP() << "ranks that are threads have no graphs"; }
  run_ranks(
      1,
      [&](World& world) {
        Steps steps{world, strategy, Offload::optimizer};
        steps.one();
        try {
          world.run_as_graph([&] { steps.one(); });
          ADD_FAILURE() << "captured";
        } catch (const ConfigError& error) {
          EXPECT_NE(std::string{error.what()}.find("cannot be one CUDA graph"), std::string::npos);
        }
      },
      on_cuda());
}

TEST_P(CudaStep, AnErrorOfTheHostFailsTheRank) {
  const auto [strategy, ranks] = GetParam();
  CustomOptimizer rule{.name = "failing", .states = 1};
  rule.update = [](const ShardUpdate&) { throw FormatError{"of the update"}; };
  try {
    run_ranks(
        ranks,
        [&](World& world) {
          Steps steps{world, strategy, Offload::optimizer, rule};
          for (int i = 0; i < 3; ++i) { steps.one(); }
        },
        on_cuda());
    ADD_FAILURE() << "nothing is thrown";
  } catch (const FormatError& error) {
    EXPECT_NE(std::string{error.what()}.find("of the update"), std::string::npos);
  }
}

using CudaStepThreads = CudaStep;
INSTANTIATE_TEST_SUITE_P(Ranks, CudaStepThreads,
                         ::testing::Values(std::tuple{Strategy::zero3, 1},
                                           std::tuple{Strategy::zero3, 3}));

TEST_P(CudaStepThreads, TheHostComputesWithTheRanksPartOfTheCores) {
  const int ranks = std::get<1>(GetParam());
  const auto cores = static_cast<int>(world::own_cores().cores.size());
  for (const int asked : {0, 3}) {
    WorldOptions options = on_cuda();
    options.host_threads = asked;
    run_ranks(
        ranks,
        [&](World& world) {
          const int expected = asked > 0 ? asked : std::max(1, cores / ranks);
          EXPECT_EQ(world.host_threads(), expected);
          static const std::string unit = "unit";
          int threads = 0;
          world::HostPool{world}.compute([&](Stream cpu) { threads = device::threads_of(cpu); },
                                         "look", unit);
          world::HostPool{world}.compute_stream().wait();
          EXPECT_EQ(threads, expected);
        },
        options);
  }
}

using CudaStepCount = CudaStep;
INSTANTIATE_TEST_SUITE_P(Ranks, CudaStepCount, ::testing::Values(std::tuple{Strategy::zero3, 2}));

TEST_P(CudaStepCount, DetectsAWait) {
  TESSERA_EMULATION_ONLY();
  const auto wait = [](World& world) { world.compute_stream().wait(); };
  EXPECT_EQ(waits_of_steps(Strategy::zero3, 2, wait), 1U);
}

/// The parameter: whether a step is one graph.
class CudaReport : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (const std::string reason = test::no_cuda(); !reason.empty()) { GTEST_SKIP() << reason; }
  }
};
INSTANTIATE_TEST_SUITE_P(Steps, CudaReport, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "graphs" : "uncaptured"; });

TEST_P(CudaReport, OfThePreviousStepDoesNotWaitForTheCurrentOne) {
  WorldOptions options;
  options.device = DeviceKind::cuda;
  run_ranks(
      1,
      [&](World& world) {
        Steps steps{world, Strategy::zero3};
        const auto step = [&] {
          GetParam() ? world.run_as_graph([&] { steps.one(); }) : steps.one();
        };
        for (int i = 0; i < 2; ++i) { steps.one(); }
        step();
        const StepReport third = steps.gpt().report();
        step();
        const StepReport of_third = steps.gpt().previous_report();
        EXPECT_EQ(of_third.step, 3);
        EXPECT_EQ(of_third.loss, third.loss);
        StepReport fourth;
        {
          test::Gate gate{world.compute_stream()};
          step();
          fourth = steps.gpt().previous_report();
        }
        EXPECT_EQ(fourth.step, 4);
        EXPECT_NE(fourth.loss, third.loss);
        EXPECT_EQ(steps.gpt().report().step, 5);
        EXPECT_EQ(steps.gpt().previous_report().loss, fourth.loss);
      },
      options);
}

}  // namespace
}  // namespace tessera::test::step_test
