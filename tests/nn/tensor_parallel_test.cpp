// Layers shared by ranks along `tensor`, against one rank.
#include <limits>

#include "kernels/backend.hpp"
#include "nn/tensor_course.hpp"
#include "tessera/base/error.hpp"
#include "tessera/nn/column_linear.hpp"
#include "tessera/nn/row_linear.hpp"
#include "tessera/nn/vocab_parallel.hpp"

namespace tessera::nn::tensor_parallel_test {
namespace {

using test::between_cuts;
using test::expect_close;
using test::run_tensor_course;
using test::TensorCase;
using test::TensorCourse;
using test::TensorOutcome;

TensorCase alone(TensorCase from) {
  from.ranks = 1;
  from.options = {};
  return from;
}

class TensorParallel : public testing::TestWithParam<TensorCase> {};

// Each size with and without sequence parallelism; the rest pairwise.
INSTANTIATE_TEST_SUITE_P(
    Cpu, TensorParallel,
    testing::Values(TensorCase{2}, TensorCase{3, {.slices = 3}, 0.3F},
                    TensorCase{4, {}, 0.3F, true},
                    TensorCase{2, {.sequence_parallel = true, .slices = 3}, 0.3F, true},
                    TensorCase{3, {.sequence_parallel = true}, 0.0F, true},
                    TensorCase{4, {.sequence_parallel = true, .slices = 3}},
                    TensorCase{4, {.sequence_parallel = true}, 0.3F}));

TEST_P(TensorParallel, EqualsOneRankToRounding) {
  expect_close(run_tensor_course(GetParam()), run_tensor_course(alone(GetParam())),
               between_cuts(GetParam()));
}

class TensorParallelOn : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    if (!test::no_cuda().empty()) { GTEST_SKIP() << test::no_cuda(); }
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, TensorParallelOn, test::cuda_alone(), test::backend_name);

// On CUDA the vocabulary is cut in multiples of 64, and the last part has room for a whole
// multiple.
TEST_P(TensorParallelOn, EqualsOneRankToRounding) {
  for (const BatchShape shape : {BatchShape{.batch = 3, .seq = 7}, {.batch = 1, .seq = 2}}) {
    const TensorCase cut{.ranks = 4,
                         .options = {.sequence_parallel = true, .slices = 2},
                         .dropout = 0.3F,
                         .again = true,
                         .device = GetParam(),
                         .shape = shape};
    expect_close(run_tensor_course(cut), run_tensor_course(alone(cut)), between_cuts(cut));
  }
}

// Two rows and three heads for four ranks: some ranks have none.
TEST(TensorParallelLayers, EqualOneRankToRoundingWhereRanksHaveNoPart) {
  for (const bool again : {false, true}) {
    TensorCase cut{4, {.sequence_parallel = true}, 0.3F, again};
    cut.shape = {.batch = 1, .seq = 2};
    expect_close(run_tensor_course(cut), run_tensor_course(alone(cut)), between_cuts(cut));
  }
}

// A run in bf16 rounds about 20 times in sequence, by 2^-9 each; with a cut, 8 times more: partial
// products before their sum.
TEST(TensorParallelLayers, EqualOneRankToRoundingInBf16) {
  for (const TensorOptions options : {TensorOptions{}, {.sequence_parallel = true, .slices = 3}}) {
    const TensorCase cut{3, options, 0.3F, false, DType::bf16};
    expect_close(run_tensor_course(cut), run_tensor_course(alone(cut)), 48 * 0x1p-9);
  }
}

// Each row is multiplied and added independently: 8 and 13 rows.
TEST(TensorParallelLayers, SlicesOfRowsChangeNoBit) {
  for (const DType compute : {DType::fp32, DType::bf16, DType::fp16}) {
    for (const bool sequence_parallel : {false, true}) {
      TensorCase cut{2, {sequence_parallel, 1}};
      cut.compute = compute;
      const TensorOutcome expected = run_tensor_course(cut);
      cut.options.slices = 3;
      for (const auto& [name, values] : run_tensor_course(cut).arrays) {
        EXPECT_TRUE(values == expected.arrays.at(name)) << to_string(compute) << " " << name;
      }
    }
  }
}

// Data sent before it is computed would differ.
TEST(TensorParallelLayers, HaveTheSameBitsWhenKernelsRunLate) {
  for (const TensorOptions options :
       {TensorOptions{.slices = 2}, {.sequence_parallel = true, .slices = 2}}) {
    TensorCase from{2, options, 0.3F, true};
    const TensorOutcome expected = run_tensor_course(from);
    from.late = true;
    const TensorOutcome late = run_tensor_course(from);
    EXPECT_TRUE(late.arrays == expected.arrays);
    EXPECT_EQ(late.losses, expected.losses);
  }
}

// Both halves of SwiGLU's product are cut alike, so that each gate is on the rank of its value.
TEST(ColumnLinear, CutsSectionsAlike) {
  run_ranks(2, [](World& world) {
    const TensorRanks ranks{world, {{"tensor", 2}}};
    const ColumnLinear up{"up", 4, 2 * 7, ranks, {.sections = 2}};
    const RowLinear down{"down", 7, 4, ranks};
    EXPECT_EQ(up.columns(), 2 * down.columns());
    const ParameterSpec weight = up.parameters()[0];
    EXPECT_EQ(weight.shape, (Shape{4, 14}));
    const TensorPart part{weight.shape, weight.cut.value(), ranks.place()};
    EXPECT_EQ(part.elements({0, up.columns()}), world.rank() == 0
                                                    ? Ranges(std::vector<Range>{{0, 3}, {7, 3}})
                                                    : Ranges(std::vector<Range>{{3, 4}, {10, 4}}));
  });
}

TEST(TensorRanks, AreOneRankWithoutDimensionTensor) {
  run_ranks(2, [](World& world) {
    const TensorRanks ranks{world, {{"shard", 2}}};
    EXPECT_EQ(ranks.size(), 1);
    EXPECT_EQ(ranks.own(7), (Range{0, 7}));
    EXPECT_EQ(ranks.row_gradient(), TensorGradient::equal);
    const VocabParallelEmbedding embedding{world, {.vocab = 7, .positions = 2, .hidden = 3}, ranks};
    EXPECT_FALSE(embedding.parameters()[0].cut);
    EXPECT_EQ(embedding.tokens(), (Range{0, 7}));
  });
}

TEST(TensorRanks, RefuseOptionsWithoutEffect) {
  const auto refusal = [](const TensorOptions& options, const std::vector<MeshDim>& mesh) {
    std::string text;
    run_ranks(1, [&](World& world) {
      try {
        const TensorRanks ranks{world, mesh, options};
      } catch (const ConfigError& error) { text = error.what(); }
    });
    return text;
  };
  EXPECT_EQ(refusal({.sequence_parallel = true}, {}),
            "sequence parallelism needs a mesh with 2 or more ranks along tensor");
  EXPECT_EQ(refusal({.slices = 2}, {{"tensor", 1}}),
            "a row product in slices needs a mesh with 2 or more ranks along tensor");
  EXPECT_EQ(refusal({.slices = 0}, {}),
            "a row product cannot be computed in 0 slices: give 1 or more");
}

}  // namespace
}  // namespace tessera::nn::tensor_parallel_test
