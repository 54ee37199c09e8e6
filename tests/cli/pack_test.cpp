// --pack and --loss-mask: documents in sequences, and tokens that the loss does not count.
#include <gmock/gmock.h>

#include <algorithm>
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::pack_test {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr char kEnd = '\n';

class Pack : public CommandTest {
 protected:
  /// The arguments of a small run, in which `more` replaces those of the same names.
  [[nodiscard]] Words training(const Words& more) const {
    const Words base = {"--layers", "2",  "--hidden", "20", "--heads", "2",
                        "--seq",    "16", "--steps",  "4",  "--data",  path("text.txt")};
    Words all = {"train", "--no-shuffle"};
    for (std::size_t i = 0; i < base.size(); i += 2) {
      if (std::ranges::find(more, base[i]) != more.end()) { continue; }
      all.insert(all.end(), {base[i], base[i + 1]});
    }
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void train(const Words& more) const {
    const Outcome outcome = tessera(training(more));
    ASSERT_EQ(outcome.status, 0) << outcome.err;
  }
  [[nodiscard]] std::string refusal(const Words& more) const {
    const Outcome outcome = tessera(training(more));
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    return outcome.err;
  }
  [[nodiscard]] std::vector<double> losses(const std::string& name,
                                           const char* key = "loss") const {
    std::vector<double> all;
    for (const nlohmann::json& line : log(name)) {
      if (line.contains(key)) { all.push_back(line.at(key)); }
    }
    return all;
  }
  void expect_near(const std::vector<double>& actual, const std::vector<double>& expected) const {
    ASSERT_EQ(actual.size(), expected.size());
    ASSERT_FALSE(actual.empty());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      EXPECT_NEAR(actual[i], expected[i], small_bounds().later_loss * expected[0]) << i;
    }
  }
  /// Writes the positions of the documents of a text as .npy.
  void write_starts(const std::string& name, const std::string& text) const {
    std::vector<std::int64_t> starts{0};
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == kEnd) { starts.push_back(static_cast<std::int64_t>(at) + 1); }
    }
    std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (" +
                         std::to_string(starts.size()) + ",), }";
    header.resize(117, ' ');
    std::string bytes = std::string{"\x93NUMPY\x01\x00\x76\x00", 10} + header + '\n';
    bytes.append(reinterpret_cast<const char*>(starts.data()), starts.size() * sizeof starts[0]);
    write_file(path(name), bytes);
  }
  /// Writes a mask that leaves out the tokens that are `c`, and every third document.
  void write_mask(const std::string& name, const std::string& text, char c) const {
    std::string mask;
    int document = 0;
    for (const char token : text) {
      mask += token != c && document % 3 != 2 ? '\1' : '\0';
      if (token == kEnd) { ++document; }
    }
    write_file(path(name), mask);
  }
};

const Words kThree = {"--ranks", "3", "--batch", "2"};
const Words kOne = {"--ranks", "1", "--batch", "1", "--accumulate", "6"};

Words operator+(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(Pack, ATokenAndThePositionsOfDocumentsTrainAlikeOnAnyRanks) {
  const std::string words = text(20'000);
  write_starts("starts.npy", words);
  write_mask("mask", words, 'e');
  const std::string held_out = text(4'000).substr(1000);
  write_file(path("held"), held_out);
  write_starts("held.npy", held_out);
  write_mask("held-mask", held_out, 'e');
  const Words masks = {"--loss-mask", path("mask"), "--eval-loss-mask", path("held-mask")};
  const Words eval = {"--eval-data", path("held"), "--eval-every", "2"};
  train(kThree + Words{"--pack", "10", "--log", path("token")} + masks + eval);
  train(
      kThree +
      Words{"--pack", path("starts.npy"), "--eval-pack", path("held.npy"), "--log", path("file")} +
      masks + eval);
  EXPECT_EQ(losses("token"), losses("file"));
  EXPECT_EQ(losses("token", "eval_loss"), losses("file", "eval_loss"));
  ASSERT_EQ(losses("token", "eval_loss").size(), 2U);
  const Words eval_two = {"--eval-data", path("held"), "--eval-every", "2", "--eval-batches", "30"};
  train(kOne + Words{"--pack", "10", "--log", path("one")} + masks + eval_two);
  expect_near(losses("one"), losses("token"));
  const std::vector<double> evaluated = losses("one", "eval_loss");
  for (const Words& mesh :
       {Words{"--ranks", "2", "--mesh", "pipe=2,shard=1"},
        Words{"--ranks", "2", "--mesh", "pipe=2,shard=1", "--layers", "4", "--schedule",
              "interleaved", "--chunks", "2"},
        Words{"--ranks", "2", "--mesh", "shard=1,tensor=2", "--sequence-parallel"}}) {
    SCOPED_TRACE(testing::PrintToString(mesh));
    const bool deep = mesh.size() > 5;
    Words one = {"--batch", "1", "--accumulate", "6", "--pack", "10"};
    one = one + masks + eval_two;
    if (deep) { train(Words{"--ranks", "1", "--layers", "4", "--log", path("deep")} + one); }
    train(mesh + one + Words{"--log", path("mesh")});
    expect_near(losses("mesh"), losses(deep ? "deep" : "one"));
    expect_near(losses("mesh", "eval_loss"), deep ? losses("deep", "eval_loss") : evaluated);
  }
  // The same held-out windows in batches of two: means are over tokens, not over batches.
  train({"--ranks", "1", "--batch", "2", "--accumulate", "3", "--pack", "10", "--log", path("two"),
         "--eval-data", path("held"), "--eval-every", "2", "--eval-batches", "15"});
  train({"--ranks", "1", "--batch", "1", "--accumulate", "6", "--pack", "10", "--log",
         path("single"), "--eval-data", path("held"), "--eval-every", "2", "--eval-batches", "30"});
  expect_near(losses("two", "eval_loss"), losses("single", "eval_loss"));
  // Neither option is without effect.
  train(kThree + Words{"--log", path("plain")});
  train(kThree + Words{"--pack", "10", "--log", path("packed")});
  train(kThree + Words{"--loss-mask", path("mask"), "--log", path("masked")});
  EXPECT_NE(losses("plain"), losses("packed"));
  EXPECT_NE(losses("plain"), losses("masked"));
  EXPECT_NE(losses("packed"), losses("token"));
}

TEST_F(Pack, OtherDocumentsInAResumedRunAreTyped) {
  write_mask("mask", text(20'000), 'e');
  const Words both = {"--pack", "10", "--loss-mask", path("mask")};
  train(kThree + both + Words{"--lr-schedule", "constant", "--log", path("whole")});
  const Words first = {"--lr-schedule", "constant", "--checkpoint", path("run")};
  const auto at = [&](const char* steps, const Words& more) {
    return tessera(training(kThree + first + more + Words{"--steps", steps}));
  };
  ASSERT_EQ(at("2", both).status, 0);
  const Outcome without = at("4", {"--resume"});
  EXPECT_EQ(without.status, 2);
  EXPECT_THAT(without.err, HasSubstr("was trained with --pack 10 --loss-mask"));
  EXPECT_THAT(without.err, HasSubstr("no --pack no --loss-mask"));
  const Outcome other = at("4", {"--resume", "--pack", "32", "--loss-mask", path("mask")});
  EXPECT_EQ(other.status, 0) << other.err;
  EXPECT_THAT(other.err + other.out, HasSubstr("--pack 32 from now on, --pack 10 before"));
}

TEST_F(Pack, ResumedStepsHaveTheBitsOfTheUninterruptedRun) {
  write_mask("mask", text(20'000), 'e');
  const Words all =
      kThree + Words{"--pack", "10", "--loss-mask", path("mask"), "--lr-schedule", "constant"};
  train(all + Words{"--log", path("whole")});
  train(all + Words{"--checkpoint", path("run"), "--steps", "2"});
  train(all + Words{"--checkpoint", path("run"), "--resume", "--log", path("rest")});
  const std::vector<double> whole = losses("whole");
  EXPECT_EQ(losses("rest"), std::vector<double>(whole.begin() + 2, whole.end()));
}

TEST_F(Pack, WhatDoesNotGoTogetherIsRefused) {
  const std::string words = text(20'000);
  write_starts("starts.npy", words);
  write_mask("mask", words, 'e');
  write_mask("short", words.substr(1), 'e');
  write_file(path("ones"), std::string(20'000, '1'));
  write_file(path("none"), std::string(20'000, '\0'));
  const std::string data = path("text.txt");
  const std::string starts = path("starts.npy"), mask = path("mask");
  const Words eval = {"--eval-data", data};
  EXPECT_THAT(refusal({"--pack", "7"}), HasSubstr("no token is 7, which is to end each document"));
  EXPECT_THAT(refusal({"--pack", "99999999999"}), HasSubstr("--pack: '99999999999'"));
  EXPECT_THAT(refusal({"--pack", path("nowhere")}), HasSubstr("--pack: "));
  EXPECT_THAT(refusal({"--loss-mask", path("nowhere")}), HasSubstr("--loss-mask: "));
  EXPECT_THAT(refusal({"--loss-mask", folder()}), HasSubstr("is a folder"));
  EXPECT_THAT(refusal({"--pack", data}), HasSubstr("not a NumPy array of integers"));
  EXPECT_THAT(refusal({"--loss-mask", path("short")}),
              HasSubstr("a mask of 19999 bytes for the 20000 tokens"));
  EXPECT_THAT(refusal({"--loss-mask", path("ones")}), HasSubstr("byte 0 is 49"));
  EXPECT_THAT(refusal({"--loss-mask", path("none")}), HasSubstr("no token counts"));
  EXPECT_THAT(refusal({"--eval-pack", starts}), HasSubstr("no effect without --eval-data"));
  EXPECT_THAT(refusal({"--eval-loss-mask", mask}), HasSubstr("no effect without --eval-data"));
  EXPECT_THAT(refusal(eval + Words{"--pack", "10", "--eval-pack", starts}),
              HasSubstr("--eval-pack has no effect"));
  EXPECT_THAT(refusal(eval + Words{"--eval-pack", starts}), HasSubstr("--eval-pack needs --pack"));
  EXPECT_THAT(refusal(eval + Words{"--pack", starts}), HasSubstr("needs --eval-pack FILE"));
  EXPECT_THAT(refusal(eval + Words{"--loss-mask", mask}), HasSubstr("needs --eval-loss-mask"));
  EXPECT_THAT(refusal(eval + Words{"--eval-loss-mask", mask}), HasSubstr("needs --loss-mask"));
  const Outcome no_data = tessera({"train", "--steps", "0", "--pack", "10"});
  EXPECT_EQ(no_data.status, 2);
  EXPECT_THAT(no_data.err, HasSubstr("--pack has no effect without --data or --tokens"));
}

}  // namespace
}  // namespace tessera::test::pack_test
