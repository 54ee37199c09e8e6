// Tiles and blocks at sizes that the recorded models do not have.
#include <algorithm>

#include "hub/hub_data.hpp"
#include "nn/hub_transpose.hpp"
#include "tessera/nn/decoder.hpp"

namespace tessera::nn::hub_transpose_test {
namespace {

TEST(HubTranspose, MovesEveryElementAndNoOther) {
  for (const std::int64_t rows : {0, 1, 31, 32, 33, 65}) {
    for (const std::int64_t columns : {0, 1, 32, 65}) {
      std::vector<float> from(static_cast<std::size_t>(columns * (rows + 3)));
      std::iota(from.begin(), from.end(), 0.0F);
      std::vector<float> to(static_cast<std::size_t>(rows * (columns + 5)), -1.0F);
      hub_transpose({from.data(), rows + 3}, {to.data(), columns + 5}, rows, columns);
      for (std::int64_t at = 0; at < std::ssize(to); ++at) {
        const std::int64_t i = at / (columns + 5);
        const std::int64_t j = at % (columns + 5);
        const auto expected = j < columns ? static_cast<float>(j * (rows + 3) + i) : -1.0F;
        ASSERT_EQ(to[static_cast<std::size_t>(at)], expected) << rows << " " << columns;
      }
    }
  }
}

// Elements are their own numbers.
void numbers(const ParameterInfo& /*parameter*/, std::int64_t first, std::span<float> out) {
  std::iota(out.begin(), out.end(), static_cast<float>(first));
}

// c_fc has 2100 * 4200 elements: several blocks.
TEST(HubTranspose, LargeParametersAreExportedAndReadInParts) {
  const test::TemporaryFolder folder;
  DecoderConfig config = DecoderConfig::preset("llama2-7b");
  config.layers = 1;
  config.hidden = 2100;
  config.heads = 20;
  config.head_elems = 4;
  config.vocab = 3;
  config.wide = 2100;
  const HubConfig hub = hub_config(config);
  export_hub(folder / "m", hub, numbers);
  const Initializer weights = hub_weights(folder / "m", hub);
  const ParameterInfo c_fc{"h.0", "mlp.c_fc.weight", {2100, 4200}, true, 0};
  const std::int64_t elems = c_fc.shape.elems();
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {0, elems}, {0, 5000}, {4199, 2}, {elems - 1, 1}, {123'456, 2'000'000}}) {
    std::vector<float> part(static_cast<std::size_t>(count));
    weights(c_fc, first, part);
    std::vector<float> expected(part.size());
    numbers(c_fc, first, expected);
    EXPECT_TRUE(part == expected) << first << " " << count;
  }
}

}  // namespace
}  // namespace tessera::nn::hub_transpose_test
