// Any part of a parameter is read as a part of the whole, and other files are refused.
#include <functional>

#include "hub/hub_data.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"
#include "tessera/nn/decoder.hpp"
#include "tessera/nn/shard.hpp"
#include "tessera/world/run.hpp"

namespace tessera::nn::hub_weights_test {
namespace {

using test::TemporaryFolder;

struct Stored {
  Shape shape;
  std::string dtype;
  std::vector<std::byte> bytes;
};
using Tensors = std::map<std::string, Stored>;

Tensors tensors_of(const std::string& model) {
  SafetensorsReader reader{test::hub_folder(model)};
  Tensors tensors;
  for (const auto& [name, entry] : reader.entries()) {
    Stored stored{entry.shape, entry.dtype, std::vector<std::byte>(entry.bytes)};
    reader.read_bytes(name, 0, stored.bytes);
    tensors.emplace(name, std::move(stored));
  }
  return tensors;
}

void write(const TemporaryFolder& folder, const Tensors& tensors) {
  std::vector<SafetensorsWriter::Declared> declared;
  for (const auto& [name, stored] : tensors) {
    declared.push_back({name, stored.shape, stored.dtype});
  }
  SafetensorsWriter writer{folder / "model.safetensors", declared};
  for (const auto& [name, stored] : tensors) { writer.write_bytes(name, stored.bytes); }
  writer.finish();
}

/// Every parameter of a model, read whole.
std::map<std::string, std::vector<float>> read_all(
    const HubConfig& hub, const Initializer& weights,
    const std::function<void(const ParameterInfo&, const std::vector<float>&)>& visit = {}) {
  std::map<std::string, std::vector<float>> all;
  run_ranks(1, [&](World& world) {
    auto model = shard(Decoder(hub.decoder), world, {.purpose = Purpose::inference});
    model.materialize(weights);
    model.model().export_state(StateTensor::parameters,
                               [&](const ParameterInfo& parameter, std::span<const float> values) {
                                 auto& whole = all[gpt2_weight_name(parameter)];
                                 whole.assign(values.begin(), values.end());
                                 if (visit) { visit(parameter, whole); }
                               });
  });
  return all;
}

TEST(HubWeights, ArePutTogetherFromTheHubsTensors) {
  for (const std::string& model : test::kHubModels) {
    const HubConfig hub = test::hub_model(model);
    std::map<std::string, std::vector<float>> back;
    read_all(hub, hub_weights(test::hub_folder(model), hub),
             [&](const ParameterInfo& parameter, const std::vector<float>& values) {
               test::to_hub(hub, parameter, values, back);
             });
    EXPECT_EQ(back, test::read_tensors(test::hub_folder(model))) << model;
  }
}

TEST(HubWeights, AnyRangeIsAPartOfTheWhole) {
  const HubConfig hub = test::hub_model("qwen2");
  const Initializer weights = hub_weights(test::hub_folder("qwen2"), hub);
  const auto all = [&](const ParameterInfo& parameter, const std::vector<float>& whole) {
    const std::int64_t elems = std::ssize(whole);
    for (std::int64_t first = 0; first < elems; first += 5) {
      for (const std::int64_t count : {0, 1, 7, 16, 33, 60, 100, 1000}) {
        if (first + count > elems) { continue; }
        std::vector<float> part(static_cast<std::size_t>(count));
        weights(parameter, first, part);
        ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + first))
            << parameter.full_name() << " [" << first << ", " << first + count << ")";
      }
    }
  };
  read_all(hub, weights, all);
}

TEST(HubWeights, NamesMayLackThePrefixAndOlderFilesHaveBuffers) {
  for (const std::string model : {"gpt2", "llama3"}) {
    const HubConfig hub = test::hub_model(model);
    Tensors tensors;
    for (auto& [name, stored] : tensors_of(model)) {
      const bool prefixed = name.starts_with("transformer.") || name.starts_with("model.");
      tensors.emplace(prefixed ? name.substr(name.find('.') + 1) : name, std::move(stored));
    }
    const Stored buffer{{1}, "F32", std::vector<std::byte>(4)};
    tensors.emplace("h.0.attn.bias", buffer);
    tensors.emplace("h.0.attn.masked_bias", buffer);
    tensors.emplace("layers.0.self_attn.rotary_emb.inv_freq", buffer);
    tensors.emplace("lm_head.weight", buffer);
    const TemporaryFolder folder;
    write(folder, tensors);
    EXPECT_EQ(read_all(hub, hub_weights(folder.path(), hub)),
              read_all(hub, hub_weights(test::hub_folder(model), hub)));
  }
}

TEST(HubWeights, ShorterSequencesHaveTheFirstPositions) {
  HubConfig hub = test::hub_model("gpt2");
  const auto whole = read_all(hub, hub_weights(test::hub_folder("gpt2"), hub));
  hub.decoder.seq = 10;
  const auto cut = read_all(hub, hub_weights(test::hub_folder("gpt2"), hub));
  const std::vector<float>& table = whole.at("wpe.weight");
  EXPECT_EQ(cut.at("wpe.weight"), std::vector<float>(table.begin(), table.begin() + 10 * 16));
}

TEST(HubWeights, OtherTensorsAreRefused) {
  const HubConfig hub = test::hub_model("mistral");
  const std::string norm = "model.layers.1.input_layernorm.weight";
  const std::string keys = "model.layers.0.self_attn.k_proj.weight";
  const auto refusal = [&](const std::function<void(Tensors&)>& change) {
    const TemporaryFolder folder;
    Tensors tensors = tensors_of("mistral");
    change(tensors);
    write(folder, tensors);
    const std::string text =
        test::message_of<FormatError>([&] { static_cast<void>(hub_weights(folder.path(), hub)); });
    return text.substr(std::min(text.size(), folder.path().string().size()));
  };
  EXPECT_EQ(refusal([&](Tensors& tensors) { tensors.erase(norm); }),
            ": there is no tensor '" + norm +
                "', which the model of config.json has (mistral of 2 layers)");
  EXPECT_EQ(refusal([&](Tensors& tensors) { tensors["model.layers.2.x"] = tensors[norm]; }),
            ": unexpected tensor 'model.layers.2.x', which the model of config.json does not have "
            "(mistral of 2 layers)");
  EXPECT_EQ(refusal([&](Tensors& tensors) { tensors[keys].shape = {16, 8}; }),
            "/model.safetensors: tensor '" + keys + "' has shape [16, 8], expected [8, 16]");
  EXPECT_EQ(refusal([&](Tensors& tensors) { tensors[norm].dtype = "I32"; }),
            "/model.safetensors: tensor '" + norm + "' has dtype I32, expected F32, BF16 or F16");
}

}  // namespace
}  // namespace tessera::nn::hub_weights_test
