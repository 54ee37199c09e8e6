// Calls of cuDNN for attention, on the module with its double. tests/kernels/attention_test.cpp
// checks the results.
#include <gmock/gmock.h>

#include "cuda/emulation.hpp"
#include "cuda/support.hpp"
#include "device/cuda_module.hpp"
#include "kernels/attention/attention.hpp"
#include "kernels/attention/cudnn_rule.hpp"
#include "kernels/values.hpp"
#include "support/mesh_run.hpp"
#include "support/planned_jobs.hpp"
#include "tessera/base/error.hpp"
#include "tessera/device/device_use.hpp"
#include "tessera/kernels/attention.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::cudnn_test {
namespace {

using kernels::AttentionShape;
using kernels::random_floats;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CudnnTest : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) { return; }
    if (device::CudaModule::get().function<void(std::size_t)>("emulated_cudnn_set_version") ==
        nullptr) {
      GTEST_SKIP() << "the module under test is not the emulated one with cuDNN's double";
    }
    emulation_ = std::make_unique<Emulation>();
    (void)builds();
    (void)executions();
  }
  void TearDown() override {
    if (emulation_) {
      set("emulated_cudnn_set_version", 91501);
      set("emulated_cudnn_set_more_workspace", 0);
    }
    emulation_.reset();
  }

  [[nodiscard]] Emulation& emulation() { return *emulation_; }
  static void set(const char* what, std::size_t value) {
    device::CudaModule::get().function<void(std::size_t)>(what)(value);
  }
  /// Calls to the double since the previous query.
  [[nodiscard]] std::uint64_t builds() { return since(builds_, "cudnnBuild"); }
  [[nodiscard]] std::uint64_t executions() { return since(executions_, "cudnnExecute"); }

  struct Result {
    std::vector<std::byte> y, dqkv;
    friend bool operator==(const Result&, const Result&) = default;
  };
  enum class Passes { forward, both };
  Result attend(const AttentionShape& shape, Passes passes = Passes::both) {
    return attend(shape, passes, bench());
  }
  /// `lent`: workspace elements for backward; 0: the size that both directions need.
  static Result attend(const AttentionShape& shape, Passes passes, CudaBench& bench,
                       std::int64_t lent = 0) {
    const Stream stream = bench.stream();
    const std::int64_t elems = shape.batch * shape.seq * shape.heads * shape.head_size;
    kernels::DeviceValues qkv{bench, random_floats(3 * elems, 1), DType::bf16};
    kernels::DeviceValues dy{bench, random_floats(elems, 2), DType::bf16};
    kernels::DeviceValues y{bench, elems, DType::bf16}, dqkv{bench, 3 * elems, DType::bf16};
    DeviceArray<float> log_sum_exp{bench, shape.batch * shape.seq * shape.heads};
    DeviceArray<float> workspace{
        bench, std::max(lent, table().attention_workspace_elems(shape, DType::bf16,
                                                                stream.state()->kernels()))};
    table().attention_forward({qkv, y, log_sum_exp.data(), workspace.data(), shape}, stream);
    if (passes == Passes::both) {
      table().attention_backward({.qkv = qkv,
                                  .y = y,
                                  .log_sum_exp = log_sum_exp.data(),
                                  .dy = dy,
                                  .dqkv = dqkv,
                                  .workspace = workspace.data(),
                                  .shape = shape,
                                  .workspace_elems = lent},
                                 stream);
    }
    return {y.read(), passes == Passes::both ? dqkv.read() : std::vector<std::byte>{}};
  }

 private:
  std::uint64_t since(std::uint64_t& before, const char* call) {
    const std::uint64_t now = emulation_->calls(call);
    return now - std::exchange(before, now);
  }

  std::unique_ptr<Emulation> emulation_;
  std::uint64_t builds_ = 0;
  std::uint64_t executions_ = 0;
};

constexpr AttentionShape kShape{2, 12, 3, 8};

TEST_F(CudnnTest, IsListedAmongTheLibraries) {
  const CudaMachine machine = cuda_machine();
  EXPECT_THAT(
      machine.libraries,
      ::testing::Contains("cuDNN 9.15.1 (built with 9.15.1, frontend 1.16.0), " + machine.module));
  EXPECT_THAT(machine.without, ::testing::IsEmpty());
}

TEST_F(CudnnTest, ComputesOnlySupportedSizes) {
  (void)attend(kShape);
  EXPECT_EQ(executions(), 2U);
  (void)attend({2, 12, 3, 7});
  EXPECT_EQ(executions(), 0U);
}

TEST_F(CudnnTest, BuildsAPlanOnceAndEvictsTheLeastRecentlyUsed) {
  const auto shape = [](std::int64_t seq) { return AttentionShape{1, seq, 1, 8}; };
  for (std::int64_t i = 0; i < 64; ++i) { (void)attend(shape(4 + 4 * i), Passes::forward); }
  EXPECT_EQ(builds(), 64U);
  (void)attend(shape(4), Passes::forward);
  EXPECT_EQ(builds(), 0U);
  (void)attend(shape(4 + 4 * 64), Passes::forward);  // evicts the second plan
  EXPECT_EQ(builds(), 1U);
  (void)attend(shape(4), Passes::forward);
  (void)attend(shape(4 + 4 * 63), Passes::forward);
  EXPECT_EQ(builds(), 0U);
  (void)attend(shape(8), Passes::forward);
  EXPECT_EQ(builds(), 1U);
}

TEST_F(CudnnTest, OnBlackwellBackwardUsesItFromTheDeterministicVersionOn) {
  const Result everywhere = attend(kShape);
  EXPECT_EQ(executions(), 2U);
  emulation().set_capability(100);
  const Result own = attend(kShape);
  EXPECT_EQ(executions(), 1U) << "forward alone";
  EXPECT_EQ(own.y, everywhere.y);
  set("emulated_cudnn_set_version", 91801);
  EXPECT_EQ(attend(kShape), everywhere);
  EXPECT_EQ(executions(), 2U);
}

TEST_F(CudnnTest, BackwardAddsInAnyOrderWhereTheStreamAllowsIt) {
  constexpr AttentionShape shape{1, 132, 2, 64};  // another order shows even in 16 bits
  const Result fixed = attend(shape);
  bench().stream().state()->compute_with(
      {.table = &table(), .attention_gradients = device::SumOrder::any});
  const Result first = attend(shape), second = attend(shape);
  EXPECT_EQ(first.y, fixed.y) << "forward is not concerned";
  EXPECT_NE(first.dqkv, second.dqkv) << "the double adds in another order in every run";
  emulation().set_capability(100);  // this cuDNN has no deterministic backward for it
  (void)executions();
  (void)attend(kShape);
  EXPECT_EQ(executions(), 2U);
  bench().stream().state()->compute_with({.table = &table()});
}

TEST_F(CudnnTest, AWorldChoosesTheOrder) {
  constexpr AttentionShape gpt2{64, 1024, 12, 64};
  for (const device::SumOrder order : {device::SumOrder::fixed, device::SumOrder::any}) {
    run_ranks(
        1,
        [&](World& world) {
          const Stream stream = world.compute_stream();
          EXPECT_EQ(stream.state()->kernels().attention_gradients, order);
          EXPECT_EQ(static_cast<std::size_t>(
                        kernels::attention_workspace_elems(gpt2, DType::bf16, stream)),
                    kernels::cuda::cudnn_workspace_bytes(gpt2, DType::bf16, order) / 4);
        },
        {.device = DeviceKind::cuda, .nondeterministic_attention = order == device::SumOrder::any});
  }
}

TEST_F(CudnnTest, WorksOnFewerHeadsAtATimeWhereItNeedsMoreForThem) {
  const Result whole = attend(kShape);
  EXPECT_EQ(executions(), 2U);
  set("emulated_cudnn_set_more_workspace", kernels::cuda::kCudnnSlackBytes / 4);
  const auto alone = std::make_unique<CudaBench>();  // starts without plans
  EXPECT_EQ(attend(kShape, Passes::both, *alone), whole);
  EXPECT_EQ(executions(), 4U) << "three heads at a time, of six";
}

// The number of heads per execution changes no bit.
TEST_F(CudnnTest, BackwardTakesAsFewPiecesAsTheWorkspaceThatIsLentAllows) {
  const Result whole = attend(kShape);
  set("emulated_cudnn_set_more_workspace", kernels::cuda::kCudnnSlackBytes / 4);
  const auto most = table().attention_backward_workspace_elems(kShape, DType::bf16, {});
  const auto slack = static_cast<std::int64_t>(kernels::cuda::kCudnnSlackBytes / sizeof(float));
  // The double needs one slack per four heads: a plan's workspace has one, the lent workspace two.
  for (const auto& [lent, pieces] : {std::pair{std::int64_t{0}, 2U}, std::pair{most + slack, 1U}}) {
    (void)executions();
    const auto alone = std::make_unique<CudaBench>();
    EXPECT_EQ(attend(kShape, Passes::both, *alone, lent), whole);
    EXPECT_EQ(executions(), 2U + pieces) << lent << ": forward takes two";
  }
}

// With a workspace for one head a GPT's backward borrows the logits' memory and runs all heads at
// once.
TEST_F(CudnnTest, AGptThatLendsItsLogitsHoldsWhatWasPlannedAndChangesNoBit) {
  MeshRun run{.config = {.layers = 2, .hidden = 16, .heads = 2, .vocab = 4096, .seq = 128},
              .options = {.compute = DType::bf16},
              .world = {.device = DeviceKind::cuda},
              .steps = 2,
              .batch = 2};
  const MeshOutcome whole = train_on(run);
  const std::uint64_t pieces = executions();
  EXPECT_GT(pieces, 0U);
  run.world.tuning.attention_workspace_bytes = 0;
  const MeshOutcome lent = train_on(run);
  EXPECT_EQ(executions(), pieces);
  EXPECT_EQ(difference(whole.seen, lent.seen), "");
  EXPECT_EQ(difference(planned_on(run, 0), lent.memory[0]), "");
  EXPECT_LT(lent.memory[0].live[Category::workspace], whole.memory[0].live[Category::workspace]);
}

TEST_F(CudnnTest, ItsDeviceMemoryIsCountedAsALibrarys) {
  const DeviceUse before = use_of(device()).value();
  const auto free_before = device().memory()->free_bytes;
  (void)attend(kShape);
  const std::size_t taken = free_before - device().memory()->free_bytes;
  const DeviceUse after = use_of(device()).value();
  EXPECT_GE(taken, std::size_t{8} << 20U) << "the double takes 4 MiB, and 2 for each plan";
  EXPECT_EQ(after.library_bytes - before.library_bytes, taken);
}

TEST_F(CudnnTest, AFailureNamesTheOperationAndHowToAvoidIt) {
  for (const char* call : {"cudnnCreate", "cudnnBuild", "cudnnExecute"}) {
    SCOPED_TRACE(call);
    emulation().fail(call, 1, Emulation::kInvalidValue);
    try {
      (void)attend(kShape);
      ADD_FAILURE() << "nothing was thrown";
    } catch (const DeviceError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("cuDNN failed in"), HasSubstr("TESSERA_CUDNN=OFF")));
    }
  }
  EXPECT_EQ(attend(kShape), attend(kShape)) << "usable afterwards";
}

TEST_F(CudnnTest, AnOldVersionIsRefusedAtTheStart) {
  set("emulated_cudnn_set_version", 91400);
  const CudaMachine machine = cuda_machine();
  EXPECT_THAT(machine.libraries, ::testing::Contains(HasSubstr("cuDNN 9.14.0 (built with 9.15.1")));
  EXPECT_THAT(machine.devices, ::testing::IsEmpty());
  EXPECT_THAT(machine.problem, HasSubstr("cuDNN 9.14.0 is too old: 9.15.1 or later is needed"));
  try {
    (void)make_cuda_device();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(), machine.problem);
    EXPECT_THAT(machine.problem, AllOf(HasSubstr("loaded was " + machine.module),
                                       HasSubstr("was built with 9.15.1, " + machine.module)));
  }
}

}  // namespace
}  // namespace tessera::test::cudnn_test
