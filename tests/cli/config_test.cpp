// Files of options: --config and --write-config.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "tessera/base/error.hpp"
#include "tools/options/command_line.hpp"
#include "tools/options/config_file.hpp"
#include "tools/options/option_table.hpp"

namespace tessera::test::config_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;
using tools::OptionRow;
using Words = std::vector<std::string>;

std::vector<std::pair<std::string, std::string>> parsed(const std::string& content) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const tools::ConfigEntry& entry : tools::parse_config("run.toml", content)) {
    all.emplace_back(entry.name, entry.text);
  }
  return all;
}

TEST(ConfigFile, HasNumbersWordsTextsAndComments) {
  EXPECT_THAT(parsed("# a comment\n\n  lr = 3e-4  # of AdamW\r\n"
                     "strategy=zero3\nstrategies = \"ddp,zero3\"\nresume = true\n"
                     "prompt = 'a \"b\" = \\ # 3'  # said\ndata = \"a#b c.txt\"\ninit = \"\""),
              ElementsAre(Pair("--lr", "3e-4"), Pair("--strategy", "zero3"),
                          Pair("--strategies", "ddp,zero3"), Pair("--resume", "true"),
                          Pair("--prompt", "a \"b\" = \\ # 3"), Pair("--data", "a#b c.txt"),
                          Pair("--init", "")));
  EXPECT_TRUE(parsed("").empty());
  EXPECT_THAT(parsed("\xEF\xBB\xBFlr = 1"), ElementsAre(Pair("--lr", "1"))) << "a byte order mark";
}

TEST(ConfigFile, RefusesTheRestOfTomlByPathAndLine) {
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {"lr = 1\n[train]\n", "run.toml, line 2: sections are not read"},
           {"lr", "line 1: 'lr' is not NAME = VALUE"},
           {"= 3", "line 1: '= 3' is not NAME = VALUE"},
           {"lr = ", "line 1: lr: it has no value"},
           {"lr = # none", "line 1: lr: it has no value"},
           {"mesh = [1, 2]", "mesh: write a list or a text in quotes"},
           {"mesh = pipe=2,shard=2", "mesh: write a list or a text in quotes"},
           {"prompt = two words", "prompt: write a list or a text in quotes"},
           {"prompt = it's", "prompt: write a list or a text in quotes"},
           {"prompt = \"open", "prompt: its closing quote is missing"},
           {"prompt = \"a\" b", "prompt: more text follows its closing quote"},
           {"prompt = \"\"\"a\"\"\"", "prompt: more text follows its closing quote"},
           {"prompt = \"a\\n\"", "prompt: escapes are not read"},
           {"lr = 1\nseed = 2\nlr = 1", "line 3: lr is given more than once"},
           {"lr\x1b = ", "line 1: lr?: it has no value"}}) {
    try {
      (void)parsed(content);
      ADD_FAILURE() << "accepted: " << content;
    } catch (const ConfigError& error) { EXPECT_THAT(error.what(), HasSubstr(text)) << content; }
  }
}

TEST(ConfigFile, OfAnyBytesIsParsedOrRefusedInOneLine) {
  const std::string alphabet = "ab= \t\r\n#\"'\\[],1.\x1b\x80";
  std::mt19937 draws{1};
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string content(draws() % 24, ' ');
    for (char& c : content) { c = alphabet[draws() % alphabet.size()]; }
    try {
      (void)parsed(content);
    } catch (const ConfigError& error) {
      ++refused;
      const std::string_view text = error.what();
      EXPECT_TRUE(std::ranges::none_of(text, [](char c) { return c >= 0 && c < ' '; })) << text;
    }
  }
  EXPECT_GT(refused, 10'000);
}

/// The settings of a command line.
tools::Settings settings_of(const Words& words) {
  std::vector<const char*> raw;
  for (const std::string& word : words) { raw.push_back(word.c_str()); }
  return tools::parse_command_line(raw).settings;
}

// An uncommented line sets the option to its default; whether it has an effect then is its rule's.
TEST(ConfigFile, ShowsEveryOptionOfACommandWithItsDefault) {
  for (const char* const command : {"train", "compare", "plan", "scale", "sample"}) {
    const std::string text = tools::config_text(command, settings_of({command}));
    EXPECT_THAT(parsed(text), ElementsAre(Pair("--command", command)));
    int shown = 0;
    for (const OptionRow& row : tools::option_table()) {
      if (!applies_to(row, command) || row.help.empty() || row.preset.empty()) { continue; }
      const std::string line = "\n# " + std::string{row.name.substr(2)} + " = ";
      const std::size_t at = text.find(line);
      ASSERT_NE(at, std::string::npos) << row.name;
      const std::size_t first = at + 3;
      EXPECT_THAT(parsed(text.substr(first, text.find('\n', first) - first)),
                  ElementsAre(Pair(std::string{row.name}, std::string{row.preset})));
      ++shown;
    }
    EXPECT_GT(shown, 5) << command;
  }
}

// Readers of TOML refuse bare words that look like numbers and are none.
TEST(ConfigFile, WritesNumbersBareAndAllElseInQuotes) {
  for (const char* const number : {"1", "0", "3e-4", "0.5", "1e9", "1.5e+3"}) {
    EXPECT_THAT(tools::config_text("train", settings_of({"train", "--lr", number})),
                HasSubstr("\nlr = " + std::string{number} + "\n"));
  }
  const std::string digits(200'000, '1');
  for (const std::string& name :
       {std::string{"1.2.3"}, std::string{"e"}, std::string{"+1"}, std::string{"1."},
        std::string{"007"}, std::string{".5"}, std::string{"-"}, std::string{"1e"}, digits}) {
    EXPECT_THAT(tools::config_text("train", settings_of({"train", "--data", name})),
                HasSubstr("\ndata = \"" + name + "\"\n"));
  }
}

class Config : public CommandTest {
 protected:
  std::string written(const Words& words) {
    Words all = words;
    all.insert(all.end(), {"--write-config", path("run.toml")});
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("run it with tessera " + words.front() + " --config"));
    return read_file(path("run.toml"));
  }
  std::vector<double> losses(const Words& words) {
    Words all = words;
    all.insert(all.end(), {"--log", path("log")});
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<double> losses;
    for (const auto& line : log("log")) {
      if (line.contains("loss")) { losses.push_back(line.at("loss")); }
    }
    return losses;
  }
};

TEST_F(Config, AWrittenFileRunsAsTheCommandLineDid) {
  const Words words = small("train", {"--steps", "3", "--strategy", "fsdp", "--lr", "2e-3",
                                      "--recompute", "gelu,layer-norm", "--deterministic"});
  const std::string text = written(words);
  for (const char* const line : {"\nlr = 2e-3\n", "\nstrategy = \"fsdp\"\n", "\nbatch = 2\n",
                                 "\nrecompute = \"gelu,layer-norm\"\n", "\ndeterministic = true\n",
                                 "\n# seed = 1\n", "\n# checkpoint = DIR\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  const auto expected = losses(words);
  ASSERT_EQ(expected.size(), 3U);
  EXPECT_EQ(losses({"train", "--config", path("run.toml")}), expected);
  EXPECT_EQ(losses({"train", "--config", path("run.toml"), "--steps", "2"}).size(), 2U)
      << "the command line counts more";
}

TEST_F(Config, ASwitchThatIsFalseIsNotGiven) {
  write_file(path("run.toml"), "graph = false\ndeterministic = true\n");
  const tools::Settings settings = settings_of({"train", "--config", path("run.toml")});
  EXPECT_FALSE(settings.graph);
  EXPECT_THAT(settings.given, ElementsAre("--deterministic", "--config"));
}

TEST_F(Config, OneFileServesTheRunAndItsPlan) {
  (void)written(small("train", {"--steps", "3", "--log", path("log"), "--trace", path("trace"),
                                "--report", path("page")}));
  const Outcome plan = tessera({"plan", "--config", path("run.toml")});
  EXPECT_EQ(plan.status, 0) << plan.err;
  EXPECT_THAT(plan.err, HasSubstr("note: --config " + path("run.toml") + ": tessera plan has no "));
  for (const char* const option : {"--log", "--trace", "--report"}) {
    EXPECT_THAT(plan.err, HasSubstr(option));
  }
  EXPECT_FALSE(std::filesystem::exists(path("page"))) << "the run's page would be replaced";
  EXPECT_THAT(plan.out, HasSubstr("3 ranks"));
}

TEST_F(Config, MistakesInAFileAreRefused) {
  for (const auto& [content, text] : std::vector<std::pair<std::string, std::string>>{
           {"layer = 2\n", "does not know '--layer'; did you mean --layers?"},
           {"# sizes\nsteps = two\n", "bad.toml, line 2: --steps: 'two' is not a whole number"},
           {"resume = yes\n", "--resume: 'yes' is neither true nor false"},
           {"config = \"other.toml\"\n", "line 1: a file of options cannot name another"},
           {"report = \"" + path("bad.toml") + "\"\n",
            "--report: " + path("bad.toml") + " is read"},
           {"layers = 2\nlayers = 2\n", "line 2: layers is given more than once"}}) {
    write_file(path("bad.toml"), content);
    const Outcome outcome = tessera(small("train", {"--config", path("bad.toml")}));
    EXPECT_EQ(outcome.status, 2) << content;
    EXPECT_THAT(outcome.err, HasSubstr(text));
  }
  const Outcome missing = tessera({"train", "--config", path("none.toml")});
  EXPECT_EQ(missing.status, 2);
  EXPECT_THAT(missing.err, HasSubstr("--config"));
  const Outcome unwritable = tessera(small("train", {"--write-config", path("no/where.toml")}));
  EXPECT_EQ(unwritable.status, 2);
  EXPECT_THAT(unwritable.err, HasSubstr("--write-config"));
  const Outcome data = tessera(small("train", {"--write-config", path("text.txt")}));
  EXPECT_EQ(data.status, 2);
  EXPECT_THAT(data.err, HasSubstr("exists, and is no file of options"));
  EXPECT_EQ(read_file(path("text.txt")), text(20'000));
}

}  // namespace
}  // namespace tessera::test::config_test
