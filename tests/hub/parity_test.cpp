// Models in Hugging Face's format compute what transformers computes with them in float64.
//
// bounds: roundings of fp32 in two layers stay below a thousand units in the last place (6e-8 each)
// in the norm of a tensor; twenty steps of AdamW double them.
#include "hub/hub_data.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::hub_parity_test {
namespace {

using test::HubResults;

class HubParity : public testing::TestWithParam<std::string> {};

std::span<const std::int32_t> part_of(const std::vector<std::int32_t>& tokens, World& world) {
  const std::size_t count = tokens.size() / static_cast<std::size_t>(world.size());
  return std::span{tokens}.subspan(static_cast<std::size_t>(world.rank()) * count, count);
}

TEST_P(HubParity, LogitsAreThoseOfTransformers) {
  const HubResults expected{GetParam()};
  const HubConfig hub = test::hub_model(GetParam());
  std::vector<float> logits;
  run_ranks(1, [&](World& world) {
    auto model = shard(Decoder(hub.decoder), world, {.purpose = Purpose::inference});
    model.materialize(hub_weights(test::hub_folder(GetParam()), hub));
    for (std::size_t first = 0; first < expected.inputs.size(); first += 24) {
      for (std::size_t count = 1; count <= 24; ++count) {
        const auto next =
            model.module().next_logits(std::span{expected.inputs}.subspan(first, count));
        logits.insert(logits.end(), next.begin(), next.end());
      }
    }
  });
  EXPECT_LE(test::distance(logits, expected.logits), 1e-5);
}

TEST_P(HubParity, GradientsAndLossesAreThoseOfTransformers) {
  const HubResults expected{GetParam()};
  const HubConfig hub = test::hub_model(GetParam());
  for (const int ranks : {1, 3}) {
    SCOPED_TRACE(ranks);
    run_ranks(ranks, [&](World& world) {
      auto model = shard(Decoder(hub.decoder), world, {.strategy = Strategy::zero3});
      model.materialize(hub_weights(test::hub_folder(GetParam()), hub));
      model.optimize_with(AdamW{.lr = 1e-2F, .beta2 = 0.999F, .weight_decay = 0.1F},
                          {.decays = [](std::string_view, const Shape&) { return true; }});
      for (std::size_t step = 0; step < expected.losses.size(); ++step) {
        model.forward_backward(part_of(expected.inputs, world), part_of(expected.targets, world));
        if (step == 0) {
          std::map<std::string, std::vector<float>> grads;
          model.model().export_state(StateTensor::gradients, [&](const ParameterInfo& parameter,
                                                                 std::span<const float> values) {
            test::to_hub(hub, parameter, values, grads);
          });
          ASSERT_EQ(grads.size(), expected.grads.size());
          for (const auto& [name, values] : expected.grads) {
            EXPECT_LE(test::distance(grads[name], values), 1e-5) << name;
          }
        }
        model.step();
        EXPECT_NEAR(model.report().loss, expected.losses[step], 2e-5) << "step " << step;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(, HubParity, testing::ValuesIn(test::kHubModels),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace tessera::nn::hub_parity_test
