// The command on models that transformers wrote (tests/hub/record.py), and what it writes for it.
#include "tessera/nn/hub.hpp"

#include <gmock/gmock.h>

#include <numeric>

#include "cli/command.hpp"
#include "hub/hub_data.hpp"

namespace tessera::test::hub_cli_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

class Hub : public CommandTest, public testing::WithParamInterface<std::string> {
 protected:
  Hub() {
    std::vector<std::uint16_t> tokens(4000);  // 53 different ones
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = static_cast<std::uint16_t>((i * i / 3 + i) % 53);
    }
    write_file(folder() / "tokens.bin",
               {reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()});
  }
  static std::string model(const std::string& name) {
    return fs::path{kSourceDir} / "tests/hub/data" / name;
  }
  [[nodiscard]] Words trained(const std::string& folder, const Words& more) const {
    Words all = {"train",          "--model", folder,    "--tokens", path("tokens.bin"),
                 "--token-format", "uint16",  "--batch", "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void refuses(const Words& words, const std::string& text) const {
    const Outcome outcome = tessera(words);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr(text));
  }
};

INSTANTIATE_TEST_SUITE_P(Families, Hub,
                         testing::Values("gpt2", "llama2", "llama3", "mistral", "qwen2", "qwen3"),
                         [](const auto& test) { return test.param; });

TEST_P(Hub, ModelsComeOutAsTheyWentIn) {
  const Outcome trained_ = tessera(
      trained(model(GetParam()), {"--ranks", "3", "--strategy", "zero3", "--steps", "1", "--lr",
                                  "0", "--weight-decay", "0", "--checkpoint", path("run")}));
  ASSERT_EQ(trained_.status, 0) << trained_.err;
  const Outcome written = tessera({"checkpoint", "export", path("run"), "--hf", path("model")});
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(read_tensors(path("model")), read_tensors(model(GetParam())));
  const nn::HubConfig expected = nn::read_hub_config(model(GetParam()));
  const nn::HubConfig found = nn::read_hub_config(path("model"));
  const auto text_of = [](const nn::HubConfig& config) {
    return nn::hub_config_text({.family = config.family, .decoder = config.decoder});
  };
  EXPECT_EQ(text_of(found), text_of(expected));
  EXPECT_EQ(found.dtype, expected.dtype);
}

TEST_P(Hub, TrainingGoesOnOnAnotherMeshAndWhatItLearntIsExported) {
  const std::string from = model(GetParam());
  const Words usual = {"--seq",         "16",       "--ranks",      "2",
                       "--accumulate",  "2",        "--strategy",   "zero3",
                       "--lr-schedule", "constant", "--checkpoint", path("run")};
  const auto run_of = [&](Words more) {
    more.insert(more.end(), usual.begin(), usual.end());
    return tessera(trained(from, more));
  };
  const Outcome first = run_of({"--mesh", "tensor=2", "--steps", "3"});
  ASSERT_EQ(first.status, 0) << first.err;
  const Outcome second = run_of({"--mesh", "pipe=2", "--steps", "6", "--resume"});
  ASSERT_EQ(second.status, 0) << second.err;
  const Outcome written = tessera({"checkpoint", "export", path("run"), "--hf", path("model")});
  ASSERT_EQ(written.status, 0) << written.err;
  EXPECT_THAT(written.out, HasSubstr("weights of step 6 written to " + path("model")));
  EXPECT_NE(read_tensors(path("model")), read_tensors(from));

  // A run from what was exported begins where the other ended.
  const Outcome sampled =
      tessera({"sample", "--model", path("model"), "--seq", "16", "--prompt-tokens", "1,2,3",
               "--count", "8", "--temperature", "0"});
  ASSERT_EQ(sampled.status, 0) << sampled.err;
  const Outcome again =
      tessera(trained(path("model"), {"--seq", "16", "--steps", "1", "--ranks", "2"}));
  EXPECT_EQ(again.status, 0) << again.err;
}

class HubRefusals : public Hub {};
INSTANTIATE_TEST_SUITE_P(Families, HubRefusals, testing::Values("llama3"),
                         [](const auto& test) { return test.param; });

TEST_P(HubRefusals, NameWhatIsWrong) {
  const std::string from = model(GetParam());
  refuses(trained(from, {"--seq", "100000"}), "--seq 100000: " + from + " has ");
  refuses(trained(from, {"--layers", "3"}), "--model cannot be combined with --layers");
  refuses(trained(from, {"--ranks", "4", "--mesh", "tensor=4", "--steps", "1"}),
          "4 ranks along tensor for 2 heads");
  refuses(trained(from, {"--recompute", "gelu", "--steps", "1"}), "give swiglu");
  refuses({"plan", "--model", path("nowhere")}, "nowhere: there is no such folder");
  fs::create_directory(path("empty"));
  refuses(trained(path("empty"), {"--steps", "1"}), "config.json");

  fs::copy(from, path("cut"));
  fs::resize_file(path("cut/model.safetensors"), 500);
  refuses(trained(path("cut"), {"--steps", "1"}), "model.safetensors");
  write_file(folder() / "cut/config.json", R"({"model_type": "mamba"})");
  refuses({"plan", "--model", path("cut")}, "mamba");

  const Outcome plain = tessera(small("train", {"--steps", "1", "--checkpoint", path("bytes")}));
  ASSERT_EQ(plain.status, 0) << plain.err;
  fs::create_directory(path("full"));
  write_file(folder() / "full/x", "x");
  refuses({"checkpoint", "export", path("bytes"), "--hf", path("full")}, "--hf: ");
  refuses({"checkpoint", "export", path("bytes"), "--hf", path("bytes")}, "is not an empty folder");
  refuses({"checkpoint", "export", path("bytes"), "--hf", path("a"), "--masters"},
          "--hf and --masters cannot be combined");
  const Outcome written = tessera({"checkpoint", "export", path("bytes"), "--hf", path("model")});
  EXPECT_EQ(written.status, 0) << written.err;
  EXPECT_EQ(nn::read_hub_config(path("model")).family, "gpt2");
}

TEST_P(HubRefusals, KeepARunFromGoingOnWithAnotherModel) {
  const std::string windows = model("mistral");
  fs::copy(windows, path("plain"));
  auto config = nlohmann::json::parse(read_file(path("plain/config.json")));
  config["sliding_window"] = nullptr;
  write_file(folder() / "plain/config.json", config.dump());
  const auto run_of = [&](const std::string& from, Words more) {
    more.insert(more.end(),
                {"--seq", "16", "--lr-schedule", "constant", "--checkpoint", path("run")});
    return trained(from, more);
  };
  ASSERT_EQ(tessera(run_of(windows, {"--steps", "1"})).status, 0);
  refuses(run_of(path("plain"), {"--steps", "2", "--resume"}), "window ");
  EXPECT_EQ(tessera(run_of(windows, {"--steps", "2", "--resume"})).status, 0);
}

TEST_P(HubRefusals, AreNotOfAShorterSequenceOfAPreset) {
  const Outcome planned =
      tessera({"plan", "--model", "llama3-8b", "--seq", "4096", "--ranks", "8", "--batch", "1",
               "--for", "cuda", "--precision", "bf16", "--budget", "80GB"});
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_THAT(planned.out, HasSubstr("llama3-8b: 8030261248 parameters (32 layers, hidden 4096, 32 "
                                     "heads (8 of keys), MLP 14336, vocab 128256, seq 4096)"));
  EXPECT_THAT(planned.out, HasSubstr("--model llama3-8b --seq 4096"));
}

}  // namespace
}  // namespace tessera::test::hub_cli_test
