// Each member of the C option structs sets its C++ counterpart, and older programs keep working.
#include "c/options.hpp"

#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "c/c_support.hpp"
#include "c/structs.hpp"
#include "tessera/base/error.hpp"

namespace tessera::c {

/// A struct of options that has grown by `late` since the first release.
struct Grown {
  std::size_t size;
  std::int64_t early;
  std::int64_t late;
};
template <>
inline constexpr std::size_t kFirstSize<Grown> = offsetof(Grown, late);

namespace {

using c_test::expect_failed;

constexpr Call kCall{"the test"};

template <class T>
std::string shown(const T& value) {
  if constexpr (std::is_enum_v<T>) { return std::to_string(static_cast<int>(value)); }
  if constexpr (std::is_arithmetic_v<T>) { return std::to_string(value); }
  if constexpr (requires { value.has_value(); }) {
    return value.has_value() ? shown(*value) : "none";
  }
  return "";
}

/// All values of ModelOptions as text, so that any change shows.
std::string all_of(const ModelOptions& o) {
  std::string mesh;
  for (const MeshDim& dim : o.mesh) { mesh += dim.name + std::to_string(dim.size); }
  std::string text;
  const auto add = [&](const char* name, const std::string& value) {
    text += std::string{name} + " " + value + "\n";
  };
  add("strategy", shown(o.strategy));
  add("shard_group", shown(o.shard_group));
  add("compute", shown(o.compute));
  add("accumulate", shown(o.accumulate));
  add("checks", shown(o.checks));
  add("purpose", shown(o.purpose));
  add("mesh", mesh);
  add("master_weights", shown(o.master_weights));
  add("gradient", shown(o.gradient));
  add("reduce", shown(o.reduce));
  add("mode", shown(o.loss_scaling.mode));
  add("initial", shown(o.loss_scaling.initial));
  add("growth", shown(o.loss_scaling.growth));
  add("backoff", shown(o.loss_scaling.backoff));
  add("minimum", shown(o.loss_scaling.minimum));
  add("growth_interval", shown(o.loss_scaling.growth_interval));
  add("max_skips", shown(o.max_skips));
  add("prefetch", shown(o.prefetch));
  add("prefetch_backward", shown(o.tuning.prefetch_backward));
  add("reshard", shown(o.reshard));
  add("persist_elems", shown(o.persist_elems));
  add("accumulate_mode", shown(o.accumulate_mode));
  add("bucket_bytes", shown(o.bucket_bytes));
  add("first_bucket_bytes", shown(o.tuning.first_bucket_bytes));
  add("offload", shown(o.offload));
  add("offload_keep", shown(o.offload_keep));
  add("align_elems", shown(o.align_elems));
  add("keep_whole", shown(o.keep_whole));
  return text;
}

tessera_model_options defaults() {
  tessera_model_options options;
  EXPECT_DONE(tessera_model_options_init(&options, sizeof options));
  return options;
}

TEST(COptions, HaveTheLibrarysDefaults) {
  EXPECT_EQ(all_of(model_options(kCall, nullptr)), all_of({}));
  const tessera_model_options given = defaults();
  EXPECT_EQ(all_of(model_options(kCall, &given)), all_of({}));
  EXPECT_EQ(describe(optimizer_choice(kCall,
                                      [] {
                                        static tessera_optimizer_options options;
                                        EXPECT_DONE(tessera_optimizer_options_init(
                                            &options, sizeof options, TESSERA_LION));
                                        return &options;
                                      }())
                         .rule),
            describe(Lion{}));
}

TEST(COptions, EachMemberSetsOneOfTheLibrarys) {
  struct Row {
    const char* changed;  // as all_of names it
    void (*change)(tessera_model_options&);
    const char* value;
  };
  const Row rows[] = {
      {"strategy", [](auto& o) { o.strategy = TESSERA_HYBRID; }, "5"},
      {"shard_group", [](auto& o) { o.shard_group = 3; }, "3"},
      {"compute", [](auto& o) { o.compute = TESSERA_FP16; }, "2"},
      {"accumulate", [](auto& o) { o.accumulate = 4; }, "4"},
      {"checks", [](auto& o) { o.checks = TESSERA_CHECKS_MEMORY; }, "2"},
      {"purpose", [](auto& o) { o.inference = 1; }, "1"},
      {"mesh", [](auto& o) { o.mesh_replicate = 2, o.mesh_shard = 3; }, "replicate2shard3"},
      {"master_weights", [](auto& o) { o.remainders = 1; }, "1"},
      {"gradient", [](auto& o) { o.gradient = TESSERA_BF16; }, "1"},
      {"reduce", [](auto& o) { o.reduce = TESSERA_BF16; }, "1"},
      {"mode", [](auto& o) { o.loss_scaling = TESSERA_SCALE_FIXED; }, "3"},
      {"initial", [](auto& o) { o.loss_scale_initial = 8.0F; }, "8.000000"},
      {"growth", [](auto& o) { o.loss_scale_growth = 4.0F; }, "4.000000"},
      {"backoff", [](auto& o) { o.loss_scale_backoff = 0.25F; }, "0.250000"},
      {"minimum", [](auto& o) { o.loss_scale_minimum = 2.0F; }, "2.000000"},
      {"growth_interval", [](auto& o) { o.loss_scale_growth_interval = 7; }, "7"},
      {"max_skips", [](auto& o) { o.max_skips = 0; }, "0"},
      {"prefetch", [](auto& o) { o.prefetch = 0; }, "0"},
      {"prefetch_backward", [](auto& o) { o.prefetch_backward = 0; }, "0"},
      {"reshard", [](auto& o) { o.reshard = TESSERA_RESHARD_AFTER_BACKWARD; }, "1"},
      {"persist_elems", [](auto& o) { o.persist_elems = 9; }, "9"},
      {"accumulate_mode", [](auto& o) { o.accumulate_mode = TESSERA_REDUCE_DEFERRED; }, "2"},
      {"bucket_bytes", [](auto& o) { o.bucket_bytes = 11; }, "11"},
      {"first_bucket_bytes", [](auto& o) { o.first_bucket_bytes = 12; }, "12"},
      {"offload", [](auto& o) { o.offload = TESSERA_OFFLOAD_STATE; }, "2"},
      {"offload_keep", [](auto& o) { o.offload_keep = 0.5F; }, "0.500000"},
      {"align_elems", [](auto& o) { o.align_elems = 128; }, "128"},
      {"keep_whole", [](auto& o) { o.keep_whole = TESSERA_WHOLE_WHERE_SMALLER; }, "2"},
  };
  for (const Row& row : rows) {
    tessera_model_options options = defaults();
    row.change(options);
    std::string expected = all_of({});
    const std::string name = std::string{row.changed} + " ";
    const std::size_t at =
        expected.rfind("\n" + name) == std::string::npos ? 0 : expected.rfind("\n" + name) + 1;
    expected.replace(at, expected.find('\n', at) - at, name + row.value);
    EXPECT_EQ(all_of(model_options(kCall, &options)), expected);
  }
}

TEST(COptions, OfAWorldMatchTheLibrarys) {
  tessera_world_options options;
  EXPECT_DONE(tessera_world_options_init(&options, sizeof options));
  WorldOptions read = world_options(kCall, &options);
  EXPECT_EQ(read.device, WorldOptions{}.device);
  EXPECT_EQ(read.deadline, WorldOptions{}.deadline);
  EXPECT_EQ(read.threads, 1);
  EXPECT_FALSE(read.cuda_ordinal.has_value());
  EXPECT_FALSE(read.budget_bytes.has_value());
  EXPECT_EQ(read.tuning.attention_workspace_bytes, WorldOptions{}.tuning.attention_workspace_bytes);
  options.device = TESSERA_CUDA;
  options.cuda_ordinal = 0;
  options.threads = 5;
  options.host_threads = 6;
  options.deadline_ms = 70;
  options.budget_bytes = 80;
  options.deterministic = 1;
  options.products = "products.txt";
  options.attention_workspace_bytes = 90;
  options.nondeterministic_attention = 1;
  options.channel_priority = TESSERA_PRIORITY_HIGH;
  options.nccl_min_ctas = 10;
  options.nccl_max_ctas = 11;
  options.nccl_windows = 1;
  options.spared_multiprocessors = 12;
  read = world_options(kCall, &options);
  EXPECT_EQ(read.device, DeviceKind::cuda);
  EXPECT_EQ(read.cuda_ordinal, 0);
  EXPECT_EQ(read.threads, 5);
  EXPECT_EQ(read.host_threads, 6);
  EXPECT_EQ(read.deadline.count(), 70);
  EXPECT_EQ(read.budget_bytes, 80U);
  EXPECT_TRUE(read.deterministic);
  EXPECT_EQ(read.products, "products.txt");
  EXPECT_EQ(read.tuning.attention_workspace_bytes, 90U);
  EXPECT_TRUE(read.nondeterministic_attention);
  EXPECT_EQ(read.tuning.channel_priority, StreamPriority::high);
  EXPECT_EQ(read.nccl.min_ctas, 10);
  EXPECT_EQ(read.nccl.max_ctas, 11);
  EXPECT_TRUE(read.nccl.windows);
  EXPECT_EQ(read.tuning.spared_multiprocessors, 12);

  // A program of the first release knows fewer members.
  options.size = offsetof(tessera_world_options, products);
  read = world_options(kCall, &options);
  EXPECT_EQ(read.threads, 5);
  EXPECT_EQ(read.products, "");
  EXPECT_EQ(read.tuning.attention_workspace_bytes, WorldOptions{}.tuning.attention_workspace_bytes);
  EXPECT_FALSE(read.nondeterministic_attention);
  EXPECT_EQ(read.tuning.channel_priority, WorldOptions{}.tuning.channel_priority);
  EXPECT_EQ(read.nccl.max_ctas, 0);
  EXPECT_FALSE(read.nccl.windows);
}

TEST(COptions, OfAnOptimizerReachItsLastFormatOfMoments) {
  tessera_optimizer_options options;
  EXPECT_DONE(tessera_optimizer_options_init(&options, sizeof options, TESSERA_ADAMW));
  options.moments = TESSERA_MOMENTS_INT8;
  EXPECT_EQ(optimizer_choice(kCall, &options).options.moments, MomentFormat::int8);
}

TEST(COptions, OfAnOlderProgramUseDefaultsForNewMembers) {
  const Grown defaults{sizeof(Grown), 1, 2};
  const Grown older{offsetof(Grown, late), 10, 77};
  const Grown given = given_or(kCall, "Grown", &older, defaults);
  EXPECT_EQ(given.early, 10);
  EXPECT_EQ(given.late, 2);
  Grown report{0, -1, -1};
  write_sized(kCall, "Grown", &report, offsetof(Grown, late), Grown{0, 3, 4});
  EXPECT_EQ(report.size, offsetof(Grown, late));
  EXPECT_EQ(report.early, 3);
  EXPECT_EQ(report.late, -1) << "beyond the program's struct";
  for (const std::size_t size : {std::size_t{0}, offsetof(Grown, late) - 1, sizeof(Grown) + 1}) {
    EXPECT_THROW(require_size<Grown>(kCall, "Grown", size), ContractError) << size;
  }
}

}  // namespace
}  // namespace tessera::c
