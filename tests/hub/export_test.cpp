// Exports are read back with equal bits, by this library and by transformers.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "hub/hub_data.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"
#include "tessera/checkpoint/weights.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::hub_export_test {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

void export_model(const std::string& model, const fs::path& to,
                  const HubExportOptions& options = {}) {
  const HubConfig hub = read_hub_config(test::hub_folder(model));
  export_hub(to, hub, hub_weights(test::hub_folder(model), hub), options);
}

TEST(HubExport, IsReadBackWithEqualBits) {
  const TemporaryFolder folder;
  for (const std::string& model : test::kHubModels) {
    export_model(model, folder / model);
    EXPECT_EQ(test::read_tensors(folder / model), test::read_tensors(test::hub_folder(model)));
    HubConfig back = read_hub_config(folder / model);
    const HubConfig expected = read_hub_config(test::hub_folder(model));
    EXPECT_EQ(hub_config(back.decoder).family, expected.family);
    EXPECT_EQ(back.decoder.parameter_elems(), expected.decoder.parameter_elems()) << model;
    EXPECT_EQ(back.dtype, DType::fp32);
    EXPECT_TRUE(fs::exists(folder / model / "generation_config.json"));
  }
}

TEST(HubExport, IsDividedAtTensorsWithAnIndex) {
  const TemporaryFolder folder;
  export_model("llama2", folder / "m", {.shard_bytes = 6'000});
  EXPECT_EQ(test::read_tensors(folder / "m"), test::read_tensors(test::hub_folder("llama2")));
  std::set<std::string> files;
  const auto index = test::read_json(folder / "m" / "model.safetensors.index.json");
  for (const auto& [tensor, file] : index["weight_map"].items()) { files.insert(file); }
  ASSERT_GT(files.size(), 3U);
  EXPECT_EQ(*files.begin(), fmt::format("model-00001-of-{:05}.safetensors", files.size()));
  for (const std::string& file : files) {
    std::uint64_t bytes = 0;
    const SafetensorsReader reader{folder / "m" / file};
    for (const auto& [name, entry] : reader.entries()) { bytes += entry.bytes; }
    EXPECT_LE(bytes, 6'000U);
  }
}

TEST(HubExport, SixteenBitsAreRoundedToNearest) {
  const TemporaryFolder folder;
  export_model("qwen3", folder / "m", {.dtype = DType::bf16});
  EXPECT_EQ(read_hub_config(folder / "m").dtype, DType::bf16);
  auto expected = test::read_tensors(test::hub_folder("qwen3"));
  for (auto& [name, values] : expected) {
    std::ranges::transform(values, values.begin(),
                           [](float x) { return bfloat16::from_float(x).to_float(); });
  }
  EXPECT_EQ(test::read_tensors(folder / "m"), expected);
}

// A GPT-2 that was not read from a file, through the file of save_weights.
TEST(HubExport, WritesWhatWasTrainedHere) {
  const TemporaryFolder folder;
  const DecoderConfig config{.layers = 2, .hidden = 16, .heads = 2, .vocab = 31, .seq = 8};
  run_ranks(2, [&](World& world) {
    auto model = shard(Decoder(config), world);
    model.materialize(1);
    save_weights(model.model(), folder / "own.safetensors", gpt2_weight_name);
  });
  const HubConfig hub = hub_config(config);
  export_hub(folder / "gpt", hub, weights_from(folder / "own.safetensors", gpt2_weight_name));
  auto own = test::read_tensors(folder / "own.safetensors");
  for (const auto& [name, values] : test::read_tensors(folder / "gpt")) {
    EXPECT_EQ(values, own.at(name.substr(std::string{"transformer."}.size()))) << name;
    own.erase(name.substr(std::string{"transformer."}.size()));
  }
  EXPECT_TRUE(own.empty());
  EXPECT_EQ(read_hub_config(folder / "gpt").family, "gpt2");
}

TEST(HubExport, RefusesAndLeavesNothing) {
  const TemporaryFolder folder;
  folder.write("full/x", "");
  EXPECT_EQ(
      test::message_of<ConfigError>([&] { export_model("gpt2", folder / "full"); }),
      (folder / "full").string() + " exists and is not an empty folder; remove it or name another");
  fs::create_directory(folder / "m.partial");
  EXPECT_EQ(test::message_of<ConfigError>([&] { export_model("gpt2", folder / "m"); }),
            (folder / "m.partial").string() +
                " exists: another export writes to it, or one was killed; remove it in that case");
  const HubConfig hub = test::hub_model("gpt2");
  const auto large = [](const ParameterInfo&, std::int64_t, std::span<float> out) {
    std::ranges::fill(out, 70'000.0F);
  };
  EXPECT_EQ(test::message_of<ConfigError>(
                [&] { export_hub(folder / "large", hub, large, {.dtype = DType::fp16}); }),
            "tensor 'transformer.wte.weight' has the value 70000, beyond the range of fp16; export "
            "the weights in fp32");
  HubConfig other = test::hub_model("llama2");
  other.decoder.head_norms = true;
  EXPECT_EQ(test::message_of<ConfigError>([&] { export_hub(folder / "o", other, large); }),
            "this decoder is no model of Hugging Face's family \"llama\": the family has other "
            "parts");
  EXPECT_FALSE(fs::exists(folder / "large"));
  EXPECT_FALSE(fs::exists(folder / "large.partial"));
  EXPECT_FALSE(fs::exists(folder / "o"));
}

// Runs where python3 has torch and transformers.
TEST(HubExport, TransformersOpensItWithEqualLogits) {
  const auto python = [](const std::string& arguments) {
    return std::system(fmt::format("PYTHONDONTWRITEBYTECODE=1 python3 {}", arguments).c_str());
  };
  if (python("-c 'import torch, transformers' 2>/dev/null") != 0) {
    GTEST_SKIP() << "python3 has no packages torch and transformers";
  }
  const TemporaryFolder folder;
  for (const std::string& model : test::kHubModels) {
    export_model(model, folder / model, {.shard_bytes = model == "qwen3" ? 4'000U : 1'000'000U});
  }
  EXPECT_EQ(python(fmt::format("'{0}/tests/hub/record.py' --check '{0}/tests/hub/data' '{1}'",
                               test::kSourceDir, folder.path().string())),
            0);
}

}  // namespace
}  // namespace tessera::nn::hub_export_test
