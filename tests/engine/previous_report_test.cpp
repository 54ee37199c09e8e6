#include <gtest/gtest.h>

#include "support/toy_model.hpp"
#include "tessera/world/run.hpp"

namespace tessera::test::previous_report_test {
namespace {

class PreviousReport : public ::testing::TestWithParam<ComputeStream> {};
INSTANTIATE_TEST_SUITE_P(Streams, PreviousReport,
                         ::testing::Values(ComputeStream::caller, ComputeStream::worker),
                         [](const auto& test) {
                           return test.param == ComputeStream::caller ? "caller" : "worker";
                         });

TEST_P(PreviousReport, IsOfThePreviousStep) {
  WorldOptions options;
  options.testing.compute_stream = GetParam();
  run_ranks(
      2,
      [](World& world) {
        ShardedModel model{world, {.strategy = Strategy::zero2}};
        const Unit line = model.add_unit("line", {{"weight", {3}}});
        model.materialize(init::constant(0.0F));
        model.optimize_with(SGD{.momentum = 0.0F});
        const auto step = [&](float gradient) {
          { const auto scope = model.forward(line); }
          {
            const auto scope = model.backward(line);
            float* const to = scope.grad("weight");
            world.compute_stream().call([=] { to[0] += gradient; });
          }
          model.set_learning_rate(gradient);
          model.step();
        };
        EXPECT_THROW((void)model.previous_report(), ContractError);
        step(1.0F);
        EXPECT_THROW((void)model.previous_report(), ContractError);
        for (const float gradient : {2.0F, 3.0F, 4.0F}) {
          step(gradient);
          const StepReport report = model.previous_report();
          EXPECT_EQ(report.step, static_cast<std::int64_t>(gradient) - 1);
          EXPECT_EQ(report.lr, gradient - 1.0F);
          EXPECT_DOUBLE_EQ(report.grad_norm, gradient - 1.0F);
        }
        EXPECT_DOUBLE_EQ(model.report().grad_norm, 4.0);
        EXPECT_DOUBLE_EQ(model.previous_report().grad_norm, 3.0) << "asking changes nothing";
      },
      options);
}

}  // namespace
}  // namespace tessera::test::previous_report_test
