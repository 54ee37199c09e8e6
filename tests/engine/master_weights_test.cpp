// The option master_weights across ranks, and its names. options_test checks its refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/tessera.hpp"

namespace tessera::test::master_weights_test {
namespace {

using ::testing::HasSubstr;

const ModelOptions kRemainders{.compute = DType::bf16, .master_weights = MasterWeights::remainder};

TEST(MasterWeightsOption, RanksThatDisagreeAreRefused) {
  const auto body = [](World& world) {
    ModelOptions options = kRemainders;
    if (world.rank() == 1) { options.master_weights = MasterWeights::fp32; }
    ShardedModel model{world, options};
    (void)model.add_unit("unit", {{"w", {4}}});
    model.materialize(init::constant(1.0F));
  };
  try {
    run_ranks(2, body);
    FAIL() << "two kinds of master weights in one model";
  } catch (const ContractError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'master_weights remainder' on rank 0"));
  }
}

TEST(MasterWeightsOption, NamesRoundTrip) {
  for (const MasterWeights kind : {MasterWeights::fp32, MasterWeights::remainder}) {
    EXPECT_EQ(parse_master_weights(to_string(kind)), kind);
  }
  EXPECT_THROW((void)parse_master_weights("bf16"), ConfigError);
}

}  // namespace
}  // namespace tessera::test::master_weights_test
