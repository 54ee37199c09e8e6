#include "tessera/checkpoint/weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#include "tessera/world/run.hpp"

namespace tessera::weights_test {
namespace {

using test::message_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

std::string full_name(const ParameterInfo& parameter) {
  return parameter.full_name();
}

// Declares sizes that no number of ranks divides, a frozen parameter, and a tied one.
void declare(ShardedModel& model) {
  model.add_unit("root", {{"wte", {7, 5}}, {"frozen", {3}, false}}, {.kind = UnitKind::root});
  model.add_unit("h.0", {{"weight", {5, 13}}, {"bias", {13}}});
  model.add_unit("head", {{.name = "weight", .shape = {7, 5}, .tied_to = TiedTo{"root", "wte"}},
                          {"scale", {}}});
}

void save(int ranks, Strategy strategy, const std::filesystem::path& path,
          const Initializer& initial) {
  const bool halves = strategy == Strategy::hybrid && ranks % 2 == 0;
  const int group = halves ? ranks / 2 : 0;
  run_ranks(ranks, [&](World& world) {
    ShardedModel model{world, {.strategy = strategy, .shard_group = group}};
    declare(model);
    model.materialize(initial);
    save_weights(model, path, full_name);
  });
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

TEST(Weights, TheFileHoldsEveryParameterOnceByItsName) {
  const TemporaryFolder folder;
  save(2, Strategy::zero3, folder / "w", init::normal(3, 0.02F));
  SafetensorsReader reader{folder / "w"};
  std::map<std::string, Shape> shapes;
  for (const auto& [name, entry] : reader.entries()) { shapes[name] = entry.shape; }
  const std::map<std::string, Shape> expected{{"root.wte", {7, 5}},
                                              {"root.frozen", {3}},
                                              {"h.0.weight", {5, 13}},
                                              {"h.0.bias", {13}},
                                              {"head.scale", {}}};
  EXPECT_EQ(shapes, expected);
  std::vector<float> drawn(65);
  init::fill_normal(3, 2, 0, 0.02F, drawn);  // the third parameter registered
  std::vector<float> saved(65);
  reader.read("h.0.weight", 0, saved);
  EXPECT_EQ(saved, drawn);
}

TEST(Weights, TheFileIsTheSameWhateverTheStrategyAndTheRanks) {
  const TemporaryFolder folder;
  save(1, Strategy::ddp, folder / "expected", init::normal(1, 1.0F));
  for (const Strategy strategy : all_strategies()) {
    for (const int ranks : {1, 2, 3, 4}) {
      SCOPED_TRACE(testing::Message() << to_string(strategy) << ", " << ranks << " ranks");
      save(ranks, strategy, folder / "w", init::normal(1, 1.0F));
      ASSERT_EQ(bytes_of(folder / "w"), bytes_of(folder / "expected"));
    }
  }
}

TEST(Weights, AModelReadsWhatAnotherCutDifferentlyHasSaved) {
  const TemporaryFolder folder;
  save(3, Strategy::zero3, folder / "first", init::normal(1, 1.0F));
  for (const Strategy strategy : all_strategies()) {
    SCOPED_TRACE(to_string(strategy));
    save(2, strategy, folder / "second", weights_from(folder / "first", full_name));
    ASSERT_EQ(bytes_of(folder / "first"), bytes_of(folder / "second"));
  }
}

TEST(Weights, TheFolderIsMade) {
  const TemporaryFolder folder;
  save(1, Strategy::ddp, folder / "a/b/model.safetensors", init::constant(1.0F));
  EXPECT_EQ(SafetensorsReader{folder / "a/b/model.safetensors"}.entries().size(), 5U);
}

// A rank that did not learn of rank 0's failure would train on, or wait forever.
TEST(Weights, AFailedWriteOfRankZeroFailsOnEveryRankAndTheModelStaysUsable) {
  const TemporaryFolder folder;
  folder.write("file", "in the way");
  std::atomic<int> told{0};
  run_ranks(3, [&](World& world) {
    ShardedModel model{world, {.strategy = Strategy::zero3}};
    declare(model);
    model.materialize(init::constant(2.0F));
    const std::string text = message_of<Error>(
        [&] { save_weights(model, folder / "file/model.safetensors", full_name); });
    if (text.find((folder / "file").string()) != std::string::npos) { ++told; }
    save_weights(model, folder / "w", full_name);
  });
  EXPECT_EQ(told, 3);
  EXPECT_EQ(SafetensorsReader{folder / "w"}.entries().size(), 5U);
}

TEST(Weights, ADuplicateNameFailsOnEveryRank) {
  const TemporaryFolder folder;
  std::atomic<int> refused{0};
  run_ranks(2, [&](World& world) {
    ShardedModel model{world, {}};
    declare(model);
    model.materialize(init::constant(2.0F));
    const auto same = [](const ParameterInfo&) { return std::string{"x"}; };
    try {
      save_weights(model, folder / "w", same);
    } catch (const Error&) { ++refused; }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// The masters would be right and every product with the parameter infinite.
TEST(Weights, ValuesBeyondTheParametersDtypeAreRefusedByNameAndCount) {
  const auto all_ones_but = [](float large) {
    return [=](const ParameterInfo& parameter, std::int64_t first, std::span<float> out) {
      std::ranges::fill(out, 1.0F);
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto element = first + static_cast<std::int64_t>(i);
        if (parameter.name == "bias" && element % 4 == 3) { out[i] = large; }
      }
    };
  };
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero3}) {
    for (const DType compute : {DType::fp16, DType::bf16}) {
      run_ranks(1, [&](World& world) {
        ShardedModel model{world, {.strategy = strategy, .compute = compute}};
        declare(model);
        const auto beyond = all_ones_but(compute == DType::fp16 ? -70'000.0F : 3.4e38F);
        EXPECT_THAT(message_of<ConfigError>([&] { model.materialize(beyond); }),
                    AllOf(HasSubstr("'h.0.bias': 3 of its values, the first "),
                          HasSubstr("at element 3"), HasSubstr(std::string{to_string(compute)})));
        model.materialize(all_ones_but(60'000.0F));  // still only declared
      });
    }
  }
}

ParameterInfo parameter(std::string name, Shape shape) {
  return {.unit = "u", .name = std::move(name), .shape = std::move(shape)};
}

std::filesystem::path write_ramp(const TemporaryFolder& folder, std::int64_t elems) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  for (std::size_t i = 0; i < values.size(); ++i) { values[i] = static_cast<float>(i); }
  SafetensorsWriter writer{folder / "ramp", {{"u.x", {elems}}}};
  writer.write("u.x", values);
  writer.finish();
  return folder / "ramp";
}

TEST(WeightsFrom, ReadsTheRequestedElements) {
  const TemporaryFolder folder;
  const Initializer initial = weights_from(write_ramp(folder, 10), full_name);
  std::vector<float> part(3);
  initial(parameter("x", {10}), 4, part);
  EXPECT_EQ(part, (std::vector<float>{4, 5, 6}));
}

TEST(WeightsFrom, SaysWhichParameterIsMissingOrHasAnotherShape) {
  const TemporaryFolder folder;
  const auto path = write_ramp(folder, 10);
  const Initializer initial = weights_from(path, full_name);
  std::vector<float> part(1);
  EXPECT_THAT(message_of<FormatError>([&] { initial(parameter("y", {10}), 0, part); }),
              AllOf(HasSubstr(path.string()), HasSubstr("no tensor 'u.y'")));
  EXPECT_THAT(message_of<FormatError>([&] { initial(parameter("x", {5, 2}), 0, part); }),
              AllOf(HasSubstr("'u.x' has shape [10]"), HasSubstr("expects [5, 2]")));
}

TEST(WeightsFrom, RefusesAFileThatIsNotThereAtOnce) {
  const TemporaryFolder folder;
  EXPECT_THAT(message_of<FormatError>([&] { (void)weights_from(folder / "none", full_name); }),
              HasSubstr((folder / "none").string()));
}

TEST(WeightsFrom, MayBeSharedByThreads) {
  const TemporaryFolder folder;
  constexpr std::int64_t kElems = 4000;
  const Initializer initial = weights_from(write_ramp(folder, kElems), full_name);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, mine = initial, rank] {
      std::vector<float> part(10);
      for (auto first = std::int64_t{rank} * 10; first < kElems; first += 40) {
        mine(parameter("x", {kElems}), first, part);
        ASSERT_EQ(part.front(), static_cast<float>(first));
        ASSERT_EQ(part.back(), static_cast<float>(first + 9));
      }
    });
  }
  for (std::thread& rank : ranks) { rank.join(); }
}

}  // namespace
}  // namespace tessera::weights_test
