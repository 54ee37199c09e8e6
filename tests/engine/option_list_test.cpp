#include "engine/rules/option_list.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace tessera::test::option_list_test {
namespace {

using engine::for_each_model_option;
using engine::settled;
using engine::text_of;

// A member more or less does not compile here: the list needs the same.
TEST(OptionList, HasEveryMemberOnce) {
  const ModelOptions options;
  const auto& [strategy, shard_group, compute, accumulate, checks, purpose, mesh, master_weights,
               gradient, reduce, loss_scaling, max_skips, prefetch, reshard, persist_elems,
               accumulate_mode, bucket_bytes, offload, offload_keep, align_elems, tuning] = options;
  const auto& [prefetch_backward, first_bucket_bytes, gradient_slots] = tuning;
  const std::vector<const void*> members = {&strategy,
                                            &shard_group,
                                            &compute,
                                            &accumulate,
                                            &checks,
                                            &purpose,
                                            &mesh,
                                            &master_weights,
                                            &gradient,
                                            &reduce,
                                            &loss_scaling,
                                            &max_skips,
                                            &prefetch,
                                            &reshard,
                                            &persist_elems,
                                            &accumulate_mode,
                                            &bucket_bytes,
                                            &offload,
                                            &offload_keep,
                                            &align_elems,
                                            &prefetch_backward,
                                            &first_bucket_bytes,
                                            &gradient_slots};
  std::vector<const void*> listed;
  std::set<std::string_view> names;
  for_each_model_option([&](const auto& option) {
    listed.push_back(&option.of(options));
    names.insert(option.name);
  });
  EXPECT_THAT(listed, testing::UnorderedElementsAreArray(members));
  EXPECT_EQ(names.size(), listed.size()) << "a name stands twice";
}

TEST(OptionList, ShowsValuesAsPeopleWriteThem) {
  EXPECT_EQ(text_of(Strategy::zero3), "zero3");
  EXPECT_EQ(text_of(Purpose::inference), "inference");
  EXPECT_EQ(text_of(0.25F), "0.25");
  EXPECT_EQ(text_of(std::optional<int>{}), "none");
  EXPECT_EQ(text_of(std::vector<MeshDim>{{"pipe", 2}, {"shard", 4}}), "pipe=2,shard=4");
  EXPECT_EQ(text_of(std::vector<MeshDim>{}), "none");
}

// Ranks that write the same in two ways agree.
TEST(OptionList, SettledOptionsHaveNoAutomaticValues) {
  const ModelOptions settled_options = settled({.compute = DType::fp16, .prefetch = 3});
  EXPECT_EQ(settled_options.tuning.prefetch_backward, 3);
  EXPECT_EQ(settled_options.accumulate_mode, AccumulateMode::deferred);
  EXPECT_EQ(settled_options.loss_scaling.mode, LossScaleMode::dynamic);
}

}  // namespace
}  // namespace tessera::test::option_list_test
