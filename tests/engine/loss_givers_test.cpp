// The reported loss is the mean over the ranks that compute with different data: a step that some
// of them give no loss, or that ranks at two places along pipe give one, would report another
// number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tessera/base/error.hpp"
#include "tessera/engine/sharded_model.hpp"
#include "tessera/world/mesh.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::loss_givers_test {
namespace {

using ::testing::HasSubstr;

/// One unit for each place along pipe.
class Trainer {
 public:
  Trainer(World& world, const std::vector<MeshDim>& mesh)
      : model_{world, {.strategy = Strategy::zero3, .mesh = mesh}} {
    const int places = mesh.empty() ? 1 : MeshShape{mesh}.size("pipe");
    const int slices = mesh.empty() ? 1 : MeshShape{mesh}.size("tensor");
    for (int place = 0; place < places; ++place) {
      units_.push_back(
          model_.add_unit("u" + std::to_string(place),
                          {{.name = "w",
                            .shape = {4, 2},
                            .cut = slices > 1 ? std::optional{TensorCut{}} : std::nullopt}},
                          {.pipe = place}));
    }
    model_.materialize(init::constant(1.0F));
    model_.optimize_with(SGD{.lr = 0.5F});
  }
  void pass() {
    for (const Unit unit : units_) {
      if (!model_.has(unit)) { continue; }
      (void)model_.forward(unit);
      (void)model_.backward(unit);
    }
  }
  void step(const double* loss, const LossCount& count = {}) { model_.step(loss, count); }
  [[nodiscard]] double loss() const { return model_.report().loss; }

 private:
  ShardedModel model_;
  std::vector<Unit> units_;
};

using Givers = std::string;  // by rank: '1' gives a loss

struct Case {
  const char* name;
  std::vector<MeshDim> mesh;
  std::vector<Givers> steps;
  const char* refused;  // a part of the text; null: the loss is 3 where any is given, else 0
};

std::string run_case(const Case& job) {
  try {
    run_ranks(static_cast<int>(job.steps.front().size()), [&](World& world) {
      Trainer trainer{world, job.mesh};
      for (const Givers& givers : job.steps) {
        const double loss = 3.0;
        trainer.pass();
        const bool gives = givers[static_cast<std::size_t>(world.rank())] == '1';
        trainer.step(gives ? &loss : nullptr);
        EXPECT_EQ(trainer.loss(), givers.find('1') == Givers::npos ? 0.0 : 3.0) << job.name;
      }
    });
  } catch (const Error& error) { return error.what(); }
  return {};
}

TEST(LossGivers, AreAllDataRanksOfOnePlaceOrNone) {
  const std::vector<MeshDim> stages{{"pipe", 2}, {"shard", 2}};
  const std::vector<MeshDim> slices{{"shard", 2}, {"tensor", 2}};
  const Case cases[] = {
      {"all", {}, {"111", "111"}, nullptr},
      {"none", {}, {"000", "000"}, nullptr},
      {"now and then", {}, {"11", "00", "00", "11"}, nullptr},
      {"one of three", {}, {"100"}, "rank 0 gives a loss, and rank 1 gives none"},
      {"all but one", {}, {"110"}, "rank 0 gives a loss, and rank 2 gives none"},
      {"one stops", {}, {"11", "10"}, "now without a loss"},
      {"one begins", {}, {"00", "10"}, "now with a loss"},
      {"the last place", stages, {"0011", "0011"}, nullptr},
      {"the first place", stages, {"1100"}, nullptr},
      {"half of a place",
       stages,
       {"0010"},
       "rank 2 (pipe 1, shard 0) gives a loss, and rank 3 (pipe 1, shard 1) gives none"},
      {"both places",
       stages,
       {"1111"},
       "and rank 2 (pipe 1, shard 0), at another place along `pipe`, does too"},
      {"a place stops", stages, {"0011", "0000"}, "gives no loss now, unlike in the steps before"},
      {"every slice", slices, {"1111"}, nullptr},
      {"the first slice", slices, {"1010"}, nullptr},
      {"a slice of one data rank",
       slices,
       {"1100"},
       "rank 0 (shard 0, tensor 0) gives a loss, and rank 2 (shard 1, tensor 0) gives none"},
  };
  for (const Case& job : cases) {
    const std::string text = run_case(job);
    if (job.refused == nullptr) {
      EXPECT_EQ(text, "") << job.name;
    } else {
      EXPECT_THAT(text, HasSubstr(job.refused)) << job.name;
    }
  }
}

/// Makes a step in which rank r counts r + 1 of `of` tokens. Returns the refusal.
std::string counted_step(const std::vector<MeshDim>& mesh, const Givers& givers,
                         const std::vector<double>& of) {
  try {
    run_ranks(static_cast<int>(givers.size()), [&](World& world) {
      Trainer trainer{world, mesh};
      const auto rank = static_cast<std::size_t>(world.rank());
      const double loss = 0.5 * (world.rank() + 2);  // of 8 tokens
      const double counted = world.rank() + 1;
      const bool gives = givers[rank] == '1';
      trainer.pass();
      trainer.step(gives ? &loss : nullptr, {gives ? &counted : nullptr, of[rank]});
      double losses = 0.0;  // sums over tokens
      double all = 0.0;
      for (std::size_t r = 0; r < givers.size(); ++r) {
        const bool counts = mesh.empty() || mesh.back().name != "tensor" || r % 2 == 0;
        if (givers[r] == '0' || !counts) { continue; }
        losses += 8 * 0.5 * static_cast<double>(r + 2);
        all += static_cast<double>(r + 1);
      }
      EXPECT_DOUBLE_EQ(trainer.loss(), losses / all);
    });
  } catch (const Error& error) { return error.what(); }
  return {};
}

TEST(LossGivers, SayWhatTheirLossCounts) {
  const std::vector<MeshDim> stages{{"pipe", 2}, {"shard", 2}};
  const std::vector<MeshDim> slices{{"shard", 2}, {"tensor", 2}};
  EXPECT_EQ(counted_step({}, "111", {8, 8, 8}), "");
  EXPECT_EQ(counted_step(stages, "0011", {8, 8, 8, 8}), "");
  EXPECT_EQ(counted_step(slices, "1111", {8, 8, 8, 8}), "");
  EXPECT_THAT(counted_step({}, "00", {8, 8}), HasSubstr("and none is given"));
  EXPECT_THAT(counted_step(stages, "0000", {8, 8, 8, 8}), HasSubstr("and none is given"));
  EXPECT_THAT(counted_step({}, "11", {8, 9}), HasSubstr("of at most 9 counted tokens"));
  EXPECT_THAT(counted_step({}, "11", {8, 0}), HasSubstr("LossCount::counted goes with"));
  EXPECT_THAT(counted_step({}, "11", {-1, -1}), HasSubstr("at least 0 and finite"));
}

// Nothing has moved: the ranks may make the step again.
TEST(LossGivers, ARefusedFirstStepCanBeMadeAgain) {
  run_ranks(2, [](World& world) {
    Trainer trainer{world, {}};
    const double loss = 3.0;
    trainer.pass();
    EXPECT_THROW(trainer.step(world.rank() == 0 ? &loss : nullptr), ContractError);
    EXPECT_NO_THROW(trainer.step(&loss));
    EXPECT_EQ(trainer.loss(), 3.0);
  });
}

}  // namespace
}  // namespace tessera::test::loss_givers_test
