// The program of docs/hub.md.
#include "hub/hub_data.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::hub_page_test {
namespace {

TEST(HubPage, LoadsTrainsAndExports) {
  const test::TemporaryFolder temporary;
  const std::filesystem::path folder = test::hub_folder("mistral");
  const std::filesystem::path saved = temporary / "weights.safetensors";
  const std::filesystem::path tuned = temporary / "tuned";
  const test::HubResults recorded{"mistral"};
  const std::span tokens = std::span{recorded.inputs}.first(16);
  const std::span next = std::span{recorded.targets}.first(16);

  nn::HubConfig hub = nn::read_hub_config(folder);
  hub.decoder.seq = 16;
  run_ranks(2, [&](World& world) {
    auto model = shard(nn::Decoder(hub.decoder), world, {.strategy = Strategy::zero3});
    model.materialize(nn::hub_weights(folder, hub));
    model.optimize_with(AdamW{.lr = 1e-5F});
    model.forward_backward(tokens, next);
    model.step();
    save_weights(model.model(), saved, nn::gpt2_weight_name);
  });
  nn::export_hub(tuned, hub, weights_from(saved, nn::gpt2_weight_name), {.dtype = DType::bf16});

  EXPECT_EQ(nn::read_hub_config(tuned).decoder.seq, 16);
}

}  // namespace
}  // namespace tessera::hub_page_test
