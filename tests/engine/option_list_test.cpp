#include "engine/rules/option_list.hpp"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::option_list_test {
namespace {

using engine::for_each_model_option;
using engine::settled;
using engine::text_of;

// A member more or less does not compile here: the list needs the same.
TEST(OptionList, HasEveryMemberOnceUnderItsName) {
  const ModelOptions options;
  const auto& [strategy, shard_group, compute, accumulate, checks, purpose, mesh, master_weights,
               gradient, reduce, loss_scaling, max_skips, prefetch, reshard, persist_elems,
               accumulate_mode, bucket_bytes, offload, offload_keep, align_elems, keep_whole,
               tuning] = options;
  const auto& [prefetch_backward, first_bucket_bytes, gradient_slots] = tuning;
  const std::multimap<std::string_view, const void*> members = {
      {"strategy", &strategy},
      {"shard_group", &shard_group},
      {"compute", &compute},
      {"accumulate", &accumulate},
      {"checks", &checks},
      {"purpose", &purpose},
      {"mesh", &mesh},
      {"master_weights", &master_weights},
      {"gradient", &gradient},
      {"reduce", &reduce},
      {"loss_scaling", &loss_scaling},
      {"max_skips", &max_skips},
      {"prefetch", &prefetch},
      {"reshard", &reshard},
      {"persist_elems", &persist_elems},
      {"accumulate_mode", &accumulate_mode},
      {"bucket_bytes", &bucket_bytes},
      {"offload", &offload},
      {"offload_keep", &offload_keep},
      {"align_elems", &align_elems},
      {"keep_whole", &keep_whole},
      {"tuning.prefetch_backward", &prefetch_backward},
      {"tuning.first_bucket_bytes", &first_bucket_bytes},
      {"tuning.gradient_slots", &gradient_slots},
  };
  std::multimap<std::string_view, const void*> listed;
  for_each_model_option(
      [&](const auto& option) { listed.emplace(option.name, &option.of(options)); });
  EXPECT_EQ(listed, members);
}

TEST(OptionList, ShowsValuesAsPeopleWriteThem) {
  EXPECT_EQ(text_of(Strategy::zero3), "zero3");
  EXPECT_EQ(text_of(Purpose::inference), "inference");
  EXPECT_EQ(text_of(0.25F), "0.25");
  EXPECT_EQ(text_of(std::optional<int>{}), "none");
  EXPECT_EQ(text_of(std::vector<MeshDim>{{"pipe", 2}, {"shard", 4}}), "pipe=2,shard=4");
  EXPECT_EQ(text_of(std::vector<MeshDim>{}), "none");
}

TEST(OptionList, SettledOptionsHaveNoAutomaticValues) {
  const ModelOptions settled_options = settled({.compute = DType::fp16, .prefetch = 3});
  EXPECT_EQ(settled_options.tuning.prefetch_backward, 3);
  EXPECT_EQ(settled_options.accumulate_mode, AccumulateMode::deferred);
  EXPECT_EQ(settled_options.loss_scaling.mode, LossScaleMode::dynamic);
  EXPECT_EQ(settled_options.keep_whole, KeepWhole::never);
}

TEST(OptionList, RanksThatWriteTheSameInTwoWaysAgree) {
  const ModelOptions automatic{.strategy = Strategy::zero3, .compute = DType::fp16, .prefetch = 3};
  run_ranks(2, [&](World& world) {
    ShardedModel model{world, world.rank() == 0 ? automatic : settled(automatic)};
    (void)model.add_unit("a", {{"w", {3}}});
    EXPECT_NO_THROW(model.materialize(init::constant(1.0F)));
  });
}

}  // namespace
}  // namespace tessera::test::option_list_test
