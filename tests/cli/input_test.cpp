// Input of the command: paths that are not regular files, and weights that do not match the model.
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::input_test {
namespace {

using Words = std::vector<std::string>;

class Input : public CommandTest {
 protected:
  [[nodiscard]] static Words sizes() {
    return {"--layers", "2", "--hidden", "20", "--heads", "2", "--seq", "16"};
  }
  [[nodiscard]] static Words with_sizes(Words words) {
    for (const std::string& word : sizes()) { words.push_back(word); }
    return words;
  }
  [[nodiscard]] std::string trained_weights() {
    EXPECT_EQ(tessera(with_sizes({"train", "--steps", "0", "--checkpoint", path("w")})).status, 0);
    return path("w/model.safetensors");
  }
  [[nodiscard]] Outcome started_from(const std::string& weights) {
    return tessera(small(
        "train", {"--steps", "2", "--no-shuffle", "--init", weights, "--log", path("run.jsonl")}));
  }

  /// A safetensors file in memory: its header, and the bytes behind it.
  struct Tensors {
    nlohmann::json header;
    std::string bytes;

    explicit Tensors(const std::string& file) {
      std::uint64_t length = 0;
      std::memcpy(&length, file.data(), sizeof length);
      header = nlohmann::json::parse(file.substr(sizeof length, length));
      bytes = file.substr(sizeof length + length);
    }
    void add(const std::string& name, std::int64_t elems) {
      const std::size_t first = bytes.size();
      bytes.append(static_cast<std::size_t>(elems) * sizeof(float), '\0');
      header[name] = {
          {"dtype", "F32"}, {"shape", {elems}}, {"data_offsets", {first, bytes.size()}}};
    }
    void put_before_names(const std::string& prefix) {
      nlohmann::json renamed;
      for (const auto& [name, entry] : header.items()) {
        renamed[name == "__metadata__" ? name : prefix + name] = entry;
      }
      header = renamed;
    }
    void set(const std::string& name, std::size_t element, float value) {
      const std::size_t first = header.at(name).at("data_offsets")[0];
      std::memcpy(bytes.data() + first + element * sizeof value, &value, sizeof value);
    }
    [[nodiscard]] std::string file() const {
      const std::string text = header.dump();
      const std::uint64_t length = text.size();
      return std::string{reinterpret_cast<const char*>(&length), sizeof length} + text + bytes;
    }
  };
};

TEST_F(Input, OptionsThatReadAFileTakeNoPipeDeviceOrFolder) {
  const std::string weights = trained_weights();
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  const Words sample = with_sizes({"sample", "--count", "1"});
  const auto after = [](Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
  };
  const Words train = with_sizes({"train", "--steps", "1"});
  // Arguments, and whether they also take a folder.
  const std::vector<std::pair<Words, bool>> table = {
      {{"plan", "--time"}, false},
      {after(sample, {"--init", weights, "--prompt-file"}), false},
      {after(sample, {"--init"}), true},
      {after(train, {"--data", path("text.txt"), "--init"}), true},
      {after(train, {"--tokens"}), false},
      {after(train, {"--data"}), true},
      {after(train, {"--data", path("text.txt"), "--eval-data"}), true},
  };
  for (const auto& [words, folders] : table) {
    for (const std::string& file : {path("pipe"), std::string{"/dev/zero"}, folder().string()}) {
      if (folders && file == folder().string()) { continue; }
      Words all = words;
      all.push_back(file);
      SCOPED_TRACE(::testing::PrintToString(all));
      const Outcome outcome = tessera(all);
      EXPECT_EQ(outcome.status, 2);
      EXPECT_EQ(outcome.out, "");
      EXPECT_NE(outcome.err.find("not a regular file"), std::string::npos) << outcome.err;
    }
  }
}

TEST_F(Input, AFolderWithoutWeightsIsNamed) {
  const Outcome outcome =
      tessera(with_sizes({"sample", "--count", "1", "--init", folder().string()}));
  EXPECT_EQ(outcome.status, 2);
  EXPECT_NE(outcome.err.find("--init: " + folder().string()), std::string::npos) << outcome.err;
}

TEST_F(Input, WeightsWithAPrefixBeforeTheirNamesAreRead) {
  const std::string plain = trained_weights();
  ASSERT_EQ(started_from(plain).err, "");
  const std::string losses = nlohmann::json(log("run.jsonl")[1].at("loss")).dump();
  Tensors tensors{read_file(plain)};
  tensors.put_before_names("transformer.");
  write_file(path("prefixed"), tensors.file());
  const Outcome outcome = started_from(path("prefixed"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "note: --init: reading the names in " + path("prefixed") +
                             " without their prefix 'transformer.'\n");
  EXPECT_EQ(nlohmann::json(log("run.jsonl")[1].at("loss")).dump(), losses);
  EXPECT_EQ(tessera(with_sizes({"sample", "--count", "3", "--init", path("prefixed")})).status, 0);
}

// safetensors.torch.save_model drops one of the names of a tied tensor: whichever comes later.
TEST_F(Input, TiedWeightsAreReadUnderEitherName) {
  const std::string plain = trained_weights();
  ASSERT_EQ(started_from(plain).err, "");
  const std::string losses = nlohmann::json(log("run.jsonl")[1].at("loss")).dump();
  for (const std::string prefix : {"", "transformer."}) {
    Tensors tensors{read_file(plain)};
    tensors.put_before_names(prefix);
    tensors.header["lm_head.weight"] = tensors.header.at(prefix + "wte.weight");
    tensors.header.erase(prefix + "wte.weight");
    write_file(path("tied"), tensors.file());
    const Outcome outcome = started_from(path("tied"));
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("has no '" + prefix + "wte.weight'; reading 'lm_head.weight'"),
              std::string::npos)
        << outcome.err;
    EXPECT_EQ(outcome.err.find("left out"), std::string::npos) << outcome.err;
    EXPECT_EQ(nlohmann::json(log("run.jsonl")[1].at("loss")).dump(), losses);
    EXPECT_EQ(tessera(with_sizes({"sample", "--count", "3", "--init", path("tied")})).status, 0);
  }
}

TEST_F(Input, WeightsUnderOtherNamesSayWhichTheyHave) {
  Tensors tensors{read_file(trained_weights())};
  tensors.put_before_names("net.");
  write_file(path("other"), tensors.file());
  const Outcome outcome = started_from(path("other"));
  EXPECT_EQ(outcome.status, 2);
  for (const char* part : {"no tensor 'h.0.ln_1.weight'", "'transformer.'", "'net."}) {
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
}

TEST_F(Input, UnknownTensorsAreNamedAndCounted) {
  Tensors tensors{read_file(trained_weights())};
  tensors.add("h.7.ln_1.weight", 20);
  write_file(path("one"), tensors.file());
  EXPECT_EQ(started_from(path("one")).err,
            "warning: --init: " + path("one") +
                " holds 1 tensor that the model has not, and that is left out: "
                "'h.7.ln_1.weight'\n");
  for (const char* name : {"a", "b", "c", "d"}) { tensors.add(name, 3); }
  write_file(path("five"), tensors.file());
  const Outcome outcome = started_from(path("five"));
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "warning: --init: " + path("five") +
                             " holds 5 tensors that the model has not, and that are left out: 'a', "
                             "'b', 'c', 'd' and 1 more\n");
}

TEST_F(Input, WeightsThatAreNotFiniteAreNamedAndCounted) {
  Tensors tensors{read_file(trained_weights())};
  tensors.set("h.1.mlp.c_fc.weight", 3, std::numeric_limits<float>::quiet_NaN());
  tensors.set("h.1.mlp.c_fc.weight", 7, std::numeric_limits<float>::infinity());
  tensors.set("wte.weight", 0, -std::numeric_limits<float>::infinity());
  write_file(path("bad"), tensors.file());
  const Outcome outcome = started_from(path("bad"));
  EXPECT_EQ(outcome.err.rfind("warning: --init: 3 of the values in " + path("bad") +
                                  " are not finite, in 'h.1.mlp.c_fc.weight', 'wte.weight'; ",
                              0),
            0U)
      << outcome.err;
  EXPECT_NE(outcome.err.find("the run has diverged"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace tessera::test::input_test
