// A rank is lost at each point of a training program while its peers' gathers and reductions are in
// flight. The cause is reported soon, and under address sanitizer nothing reads freed memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "support/groups.hpp"
#include "tessera/tessera.hpp"

namespace tessera::model_failure_test {
namespace {

constexpr int kPoints = 13;

/// Throws on rank 1 at one point of the program.
class Loss {
 public:
  Loss(const World& world, int point) noexcept : point_{world.rank() == 1 ? point : -1} {}
  void at(int point) const {
    if (point == point_) { throw FormatError{"lost at " + std::to_string(point)}; }
  }

 private:
  int point_;
};

void run_passes(ShardedModel& model, const std::vector<Unit>& units, const Loss& loss, int step) {
  for (const Unit unit : units) {
    const auto p = model.forward(unit);
    if (step == 1 && unit.index() == 2) { loss.at(4); }
  }
  if (step == 1) { loss.at(5); }
  for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
    const auto g = model.backward(*unit);
    if (step == 0 && unit->index() == 3) { loss.at(6); }
    if (step == 1 && unit->index() == 1) { loss.at(7); }
  }
  if (step == 1) { loss.at(8); }
}

void train(World& world, const ModelOptions& options, int point) {
  const Loss loss{world, point};
  ShardedModel model{world, options};
  std::vector<Unit> units{model.add_unit("root", {{"w", {513}}}, {.kind = UnitKind::root})};
  for (int i = 0; i < 3; ++i) {
    units.push_back(model.add_unit("block." + std::to_string(i),
                                   {{"w", {300 + i}}, {"frozen", {5}, /*trainable=*/false}}));
  }
  loss.at(0);
  model.materialize([&](const ParameterInfo&, std::int64_t, std::span<float> out) {
    std::ranges::fill(out, 1.0F);
  });
  loss.at(1);
  model.optimize_with(AdamW{}, {.decays = [&](std::string_view, const Shape&) {
                        loss.at(2);
                        return true;
                      }});
  loss.at(3);
  const auto sink_that_throws_at = [&](int at) {
    return [&loss, at](const ParameterInfo& info, std::span<const float>) {
      if (info.unit == "block.1") { loss.at(at); }
    };
  };
  for (int step = 0; step < 3; ++step) {
    for (int micro = 0; micro < options.accumulate; ++micro) {
      run_passes(model, units, loss, step);
    }
    // An export waits for the host. Without exports the update is still pending when a rank is
    // lost.
    const bool exports = options.offload == Offload::none;
    if (exports) { model.export_state(StateTensor::gradients, sink_that_throws_at(9)); }
    model.step();
    if (step == 1) { loss.at(10); }
    if (exports || step == 2) {
      model.export_state(StateTensor::parameters, sink_that_throws_at(11));
    }
  }
  loss.at(12);
}

void expect_the_loss_is_reported(const ModelOptions& options, ComputeStream stream, int point) {
  const WorldOptions world{.testing = {.poison = SlotPoison::nan,
                                       .delays = DelayInjection{.seed = 5},
                                       .compute_stream = stream}};
  const auto began = std::chrono::steady_clock::now();
  try {
    run_ranks(
        options.strategy == Strategy::hybrid ? 4 : 3,
        [&](World& rank) { train(rank, options, point); }, world);
    ADD_FAILURE() << "the loss was not noticed";
  } catch (const FormatError& error) {
    EXPECT_EQ(error.what(), "rank 1: lost at " + std::to_string(point));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds{10});
}

class ModelFailure : public testing::TestWithParam<Strategy> {};
INSTANTIATE_TEST_SUITE_P(Strategies, ModelFailure, testing::ValuesIn(test::tried_strategies()),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(ModelFailure, LosingARankAtAnyPointEndsTheJobWithItsCause) {
  for (const AccumulateMode mode : {AccumulateMode::every, AccumulateMode::deferred}) {
    const int group = GetParam() == Strategy::hybrid ? 2 : 0;
    const ModelOptions options{
        .strategy = GetParam(), .shard_group = group, .accumulate = 2, .accumulate_mode = mode};
    for (const ComputeStream stream : {ComputeStream::caller, ComputeStream::worker}) {
      for (int point = 0; point < kPoints; ++point) {
        SCOPED_TRACE("point " + std::to_string(point) + ", " + std::string{to_string(mode)});
        expect_the_loss_is_reported(options, stream, point);
      }
    }
  }
}

// Host updates and copies in both directions are in flight when a rank is lost.
TEST_P(ModelFailure, LosingARankWithStateOnTheHostEndsTheJobWithItsCause) {
  const int group = GetParam() == Strategy::hybrid ? 2 : 0;
  using Way = std::pair<Offload, float>;
  for (const auto& [offload, keep] :
       {Way{Offload::optimizer, 0.0F}, Way{Offload::optimizer, 0.4F}, Way{Offload::state, 0.4F}}) {
    const ModelOptions options{.strategy = GetParam(),
                               .shard_group = group,
                               .accumulate = 2,
                               .offload = offload,
                               .offload_keep = keep};
    for (const ComputeStream stream : {ComputeStream::caller, ComputeStream::worker}) {
      for (int point = 0; point < kPoints; ++point) {
        if (point == 9) { continue; }  // gradients are not exported
        SCOPED_TRACE("point " + std::to_string(point) + ", keeps " + std::to_string(keep));
        expect_the_loss_is_reported(options, stream, point);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::model_failure_test
