// Ranks with unequal numbers of samples, or none, train like one rank that has all samples
// (docs/recipes.md; for modules docs/libtorch.md).

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "modules.hpp"
#include "support/rounding.hpp"
#include "tessera/tessera.hpp"

namespace torch_test::unequal_ranks_test {
namespace {

using tessera::ParameterInfo;
using tessera::Strategy;
using tessera::World;

/// The range of each rank's samples in a step: [step][rank].
struct Part {
  std::int64_t first;
  std::int64_t end;
};
using Parts = std::vector<std::vector<Part>>;
const Parts kParts = {
    {{0, 3}, {3, 5}, {5, 6}}, {{6, 9}, {9, 9}, {9, 10}}, {{10, 13}, {13, 13}, {13, 13}}};

std::map<std::string, std::vector<float>> train(const Parts& parts, Strategy strategy) {
  std::map<std::string, std::vector<float>> weights;
  tessera::run_ranks(static_cast<int>(parts[0].size()), [&](World& world) {
    const auto net = seeded(1, [] { return std::make_shared<BlockImpl>(6); });
    const torch::Tensor data = seeded(2, [] { return torch::randn({13, 6}); });
    auto model = tessera::torch::shard(
        net, world, {.model = {.strategy = strategy}, .units = tessera::torch::units_named({"*"})});
    model.optimize_with(tessera::SGD{.lr = 0.2F, .momentum = 0.5F});
    for (const auto& step : parts) {
      const Part mine = step[static_cast<std::size_t>(world.rank())];
      const auto rows = static_cast<double>(mine.end - mine.first);
      const double all_rows = world.sum(rows);
      // A rank without samples runs any sample with weight 0, to make the same calls.
      const torch::Tensor x = rows == 0 ? data.slice(0, 0, 1) : data.slice(0, mine.first, mine.end);
      model.backward((model(x) - 1).pow(2).mean() * (world.size() * rows / all_rows));
      model.step();
    }
    model.model().export_state(tessera::StateTensor::parameters,
                               [&](const ParameterInfo& parameter, std::span<const float> values) {
                                 if (world.rank() == 0) {
                                   weights[parameter.full_name()] = {values.begin(), values.end()};
                                 }
                               });
  });
  return weights;
}

TEST(TorchUnequalRanks, TrainAsOneRankWithAllSamples) {
  Parts together;
  for (const auto& step : kParts) { together.push_back({{step.front().first, step.back().end}}); }
  const auto one = train(together, Strategy::ddp);
  ASSERT_EQ(one.size(), 6U);
  for (const Strategy strategy : {Strategy::ddp, Strategy::zero2, Strategy::zero3}) {
    const auto several = train(kParts, strategy);
    for (const auto& [name, values] : one) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        // Three steps through two products of at most 12 terms; a sum over 6 rows.
        const double within =
            tessera::test::chain_difference(3 * tessera::test::layers_roundings(2, 12, 6));
        EXPECT_NEAR(several.at(name)[i], values[i], within) << to_string(strategy) << " " << name;
      }
    }
  }
}

}  // namespace
}  // namespace torch_test::unequal_ranks_test
