// Training uses recorded cuBLASLt algorithms and refuses an invalid file; its products leave
// multiprocessors to collectives.
#include "kernels/matmul/product_choices.hpp"

#include <gmock/gmock.h>

#include "bench/cuda/training_products.hpp"
#include "cuda/emulation.hpp"
#include "cuda/support.hpp"
#include "device/cuda_module.hpp"
#include "device/stream_state.hpp"
#include "emulated_cuda/controls.hpp"
#include "support/gpt_run.hpp"
#include "support/groups.hpp"
#include "support/mesh_run.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/world/run.hpp"
#include "world/world_state.hpp"

namespace tessera::test::product_choices_test {
namespace {

using kernels::MatMul;
using kernels::ProductAlgorithm;
using kernels::ProductChoices;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr int kPlace = 2;  // among the double's algorithms
constexpr int kSteps = 2;
constexpr nn::DecoderConfig kModel{.layers = 2, .hidden = 16, .heads = 2, .vocab = 257, .seq = 8};

EmulatedCublasLtCounts counts() {
  EmulatedCublasLtCounts now{};
  device::CudaModule::get().function<void(EmulatedCublasLtCounts*)>("emulated_cublaslt_counts")(
      &now);
  return now;
}

class RecordedProducts : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) { return; }
    TESSERA_EMULATION_ONLY();
    device::CudaModule::get().function<kernels::FindProductMachine>("tessera_cublaslt_machine")(
        stream(), choices_.machine);
  }

  enum class Sums : std::uint8_t { in_products, apart };

  /// Chooses the algorithm at `place` for each product of the training, and products for the sums
  /// that are gradients of biases.
  void choose(int place, Sums sums = Sums::in_products) {
    for (const bench::TrainingProduct& product : bench::training_products(kModel, kGPTRunBatch)) {
      if (product.bias_gradient && sums == Sums::apart) { continue; }
      record(product, place);
    }
  }
  /// Chooses the algorithm at `place` for a product.
  void record(const bench::TrainingProduct& product, int place) {
    const MatMul p = with_matrices(product);
    std::vector<ProductAlgorithm> offers;
    device::CudaModule::get().function<kernels::OfferProductAlgorithms>("tessera_cublaslt_offers")(
        p, kPlace + 1, stream(), offers);
    ASSERT_EQ(offers.size(), std::size_t{kPlace + 1}) << product.name;
    choices_.products[kind_of(p)] = {.algorithm = offers.at(static_cast<std::size_t>(place))};
  }
  [[nodiscard]] ProductChoices& choices() { return choices_; }

  [[nodiscard]] std::string file() {
    return folder_.write("choices.json", to_json(choices_)).string();
  }
  [[nodiscard]] static GPTRun run_with(const std::string& products,
                                       Strategy strategy = Strategy::ddp, int ranks = 1) {
    GPTRun run;
    run.config = kModel;
    run.options.strategy = strategy;
    run.options.shard_group = groups_of_one(strategy);
    run.options.compute = DType::bf16;
    run.world.device = DeviceKind::cuda;
    run.world.products = products;
    run.ranks = ranks;
    run.steps = kSteps;
    return run;
  }
  void refused(const GPTRun& run, const std::string& text) {
    try {
      (void)train_gpt(run);
      FAIL() << "it is taken";
    } catch (const Error& error) { EXPECT_THAT(error.what(), HasSubstr(text)); }
  }

 private:
  /// Gives the product aligned addresses, which are never dereferenced.
  static MatMul with_matrices(const bench::TrainingProduct& product) {
    alignas(256) static char memory[1];
    MatMul p = product.like;
    p.a = {memory, DType::bf16};
    p.b = {memory, DType::bf16};
    p.c = {memory, product.result};
    if (product.bias) { p.bias = {memory, DType::bf16}; }
    if (product.bias_gradient) { p.bias_gradient = {memory, DType::fp32}; }
    if (p.epilogue != kernels::Epilogue::none) { p.pre_gelu = {memory, product.result}; }
    return p;
  }

  TemporaryFolder folder_;
  ProductChoices choices_;
};

TEST_F(RecordedProducts, ComputeAllProductsOfATraining) {
  choose(kPlace);
  const EmulatedCublasLtCounts before = counts();
  (void)train_gpt(run_with(file()));
  const EmulatedCublasLtCounts after = counts();
  EXPECT_GT(after.products, before.products);
  EXPECT_EQ(after.by_place[kPlace] - before.by_place[kPlace], after.products - before.products);
}

TEST_F(RecordedProducts, GiveTheSameBitsUnderEveryStrategyAndInEveryRun) {
  choose(kPlace);
  const ToyOutcome one = train_gpt(run_with(file(), Strategy::ddp, 2));
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    const ToyOutcome other = train_gpt(run_with(file(), strategy, 2));
    EXPECT_EQ(other.losses, one.losses) << to_string(strategy);
  }
}

// A kernel that sums columns in chunks and one that adds the chunks become a copy of the product's
// sums, as a bias has one gradient a step. c_attn, c_proj, c_fc and mlp.c_proj have biases.
TEST_F(RecordedProducts, SumColumnsWithoutAKernelForThem) {
  Emulation emulation;
  const auto launches = [&](Sums sums) {
    choices().products.clear();
    choose(kPlace, sums);
    const std::uint64_t before = emulation.calls("cudaLaunchKernelEx");
    const GPTRun run = run_with(file());
    (void)train_gpt(run);
    return emulation.calls("cudaLaunchKernelEx") - before;
  };
  const std::uint64_t apart = launches(Sums::apart);
  EXPECT_EQ(apart - launches(Sums::in_products), std::uint64_t{2 * 4} * kModel.layers * kSteps);
}

// Ranks along tensor that all have a RowLinear's bias compute its gradient alike, whatever is
// recorded for the columns of one of them: 3 heads are 32 and 16 columns.
TEST_F(RecordedProducts, DoNotSumForABiasThatRanksAlongTensorShare) {
  MeshRun run;
  run.config = {.layers = 1, .hidden = 48, .heads = 3, .vocab = 257, .seq = 16};
  run.options.compute = DType::bf16;
  run.options.mesh = {{"tensor", 2}};
  run.world.device = DeviceKind::cuda;
  for (const std::int64_t columns : {16, 32, 96}) {
    MatMul dw{.a = {}, .b = {}, .c = {}, .m = columns, .n = 48, .k = 16};
    dw.transpose_a = kernels::Transpose::yes;
    dw.write = kernels::Write::add;
    record({.name = "row", .like = dw, .result = DType::fp32, .bias_gradient = true}, kPlace);
  }
  run.world.products = file();
  const EmulatedCublasLtCounts before = counts();
  (void)train_on(run);
  EXPECT_GT(counts().products, before.products);
  EXPECT_EQ(counts().by_place[kPlace], before.by_place[kPlace]);
}

TEST_F(RecordedProducts, OfTheFirstChoiceEqualARunWithoutAFile) {
  choose(0, Sums::apart);
  EXPECT_EQ(train_gpt(run_with(file())).losses, train_gpt(run_with({})).losses);
}

TEST_F(RecordedProducts, OfAnotherMachineAreRefused) {
  choices().machine.device = "another card";
  refused(run_with(file()), "was recorded on another card with cuBLASLt");
  choose(0);
  choices().machine.cublaslt = 120305;
  refused(run_with(file()), "with cuBLASLt 12.3.5 on 4 multiprocessors, and this is");
  refused(run_with("nowhere.json"), "nowhere.json: it is not a file that can be read");
  GPTRun on_cpu = run_with(file());
  on_cpu.world.device = DeviceKind::cpu;
  refused(on_cpu, "`products` has no effect on a CPU");
}

TEST_F(RecordedProducts, ThatAreNoAlgorithmsAreRefused) {
  choose(0);
  for (auto& [kind, choice] : choices().products) { choice.algorithm = {1, 2, 3}; }
  refused(run_with(file()), "is no algorithm for it");
}

TEST_F(RecordedProducts, ThatDifferBetweenRanksAreRefused) {
  choose(0);
  const GPTRun run = run_with(file(), Strategy::zero3, 2);
  const auto starts = [&] {
    run_ranks(
        run.ranks,
        [&](World& world) {
          ProductChoices& mine = *world::WorldAccess::state(world).products;
          mine.products.begin()->second.ms += world.rank();
          auto gpt = shard(nn::Decoder{run.config}, world, run.options);
          gpt.materialize(/*seed=*/3);
        },
        run.world);
  };
  EXPECT_THAT(starts,
              ThrowsMessage<ContractError>(AllOf(HasSubstr("the model differs between ranks"),
                                                 HasSubstr("products recorded on"))));
}

class SparedMultiprocessors : public RecordedProducts {
 protected:
  [[nodiscard]] static GPTRun sparing(int spared, const std::string& products = {}) {
    GPTRun run = run_with(products);
    run.world.tuning.spared_multiprocessors = spared;
    return run;
  }
};

// Products that are added to gradients of 16 bits go through the workspace.
TEST_F(SparedMultiprocessors, LimitEveryProductAndChangeNoBitOfTheDouble) {
  for (const DType gradient : {DType::fp32, DType::bf16}) {
    SCOPED_TRACE(to_string(gradient));
    const auto trained = [&](int spared) {
      GPTRun run = sparing(spared);
      run.options.gradient = gradient;
      run.options.accumulate = 2;
      return train_gpt(run);
    };
    const ToyOutcome all = trained(0);
    const EmulatedCublasLtCounts before = counts();
    const ToyOutcome some = trained(1);
    const EmulatedCublasLtCounts after = counts();
    EXPECT_EQ(after.limited - before.limited, after.products - before.products);
    EXPECT_EQ(after.multiprocessors, choices().machine.multiprocessors - 1);
    EXPECT_EQ(some.losses, all.losses);
    (void)trained(0);
    EXPECT_EQ(counts().limited, after.limited);
  }
}

TEST_F(SparedMultiprocessors, LeaveSomeToProducts) {
  refused(sparing(choices().machine.multiprocessors),
          "`tuning.spared_multiprocessors` is 4, but the device has 4: leave some to products");
  refused(sparing(-1), "`tuning.spared_multiprocessors` is -1: choose 0 or more");
  GPTRun on_cpu = sparing(1);
  on_cpu.world.device = DeviceKind::cpu;
  refused(on_cpu, "`tuning.spared_multiprocessors` has no effect on a CPU");
}

TEST_F(SparedMultiprocessors, NeedProductsThatWereRecordedWithThem) {
  choose(kPlace);
  refused(sparing(1, file()), "on 4 multiprocessors, and this is ");
  kernels::spare_multiprocessors(choices().machine, 1);
  refused(sparing(0, file()), "on 3 multiprocessors, and this is ");
  const EmulatedCublasLtCounts before = counts();
  (void)train_gpt(sparing(1, file()));
  EXPECT_GT(counts().by_place[kPlace], before.by_place[kPlace]);
}

TEST_F(SparedMultiprocessors, ThatDifferBetweenRanksAreRefused) {
  GPTRun run = sparing(1);
  run.options.strategy = Strategy::zero3;
  const auto starts = [&] {
    run_ranks(
        2,
        [&](World& world) {
          world::WorldAccess::state(world).options.tuning.spared_multiprocessors += world.rank();
          auto gpt = shard(nn::Decoder{run.config}, world, run.options);
          gpt.materialize(/*seed=*/3);
        },
        run.world);
  };
  EXPECT_THAT(starts,
              ThrowsMessage<ContractError>(AllOf(HasSubstr("the model differs between ranks"),
                                                 HasSubstr("tuning.spared_multiprocessors 2"))));
}

}  // namespace
}  // namespace tessera::test::product_choices_test
