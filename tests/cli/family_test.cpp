// Families of models: what their members share, and that published models are among them.
#include "tools/scale/family.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "cli/scale_settings.hpp"
#include "tessera/base/error.hpp"

namespace tessera::tools::family_test {
namespace {

using nn::DecoderConfig;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Words = std::vector<std::string>;

constexpr auto settings_of = test::scale_settings;

/// Every preset, and a folder of every family of the hub.
Words all_models() {
  Words all{DecoderConfig::preset_names().begin(), DecoderConfig::preset_names().end()};
  for (const char* folder : {"gpt2", "llama2", "llama3", "mistral", "qwen2", "qwen3"}) {
    all.push_back(test::hub_folder(folder));
  }
  return all;
}

Family family_named(const std::string& model, const Words& more = {}) {
  Words words = {"--model", model};
  words.insert(words.end(), more.begin(), more.end());
  return family_of(settings_of(words));
}

class FamilyTest : public testing::TestWithParam<std::string> {
 protected:
  /// The family with each of several widths per layer, its own first.
  [[nodiscard]] static std::vector<Family> families() {
    std::vector<Family> all = {family_named(GetParam())};
    for (const char* aspect : {"1", "48", "64", "100", "1024"}) {
      all.push_back(family_named(GetParam(), {"--aspect", aspect}));
    }
    return all;
  }
};

INSTANTIATE_TEST_SUITE_P(All, FamilyTest, testing::ValuesIn(all_models()), [](const auto& test) {
  const std::filesystem::path model = test.param;
  std::string name = (model.has_parent_path() ? "hub_" : "") + model.filename().string();
  std::ranges::replace_if(name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST_P(FamilyTest, ContainsTheModelItIsNamedAfter) {
  const Family family = family_named(GetParam());
  const NamedModel model = settings_of({"--model", GetParam()}).published_model("");
  EXPECT_EQ(family.name, GetParam());
  EXPECT_EQ(family.member(model.config.layers), model.config);
}

TEST_P(FamilyTest, EveryMemberIsAModelAndLargerThanTheOneBefore) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.rule());
    ASSERT_GT(family.last(), 1);
    DecoderConfig before = family.member(1);
    for (std::int64_t k = 1; k <= family.last(); ++k) {
      const DecoderConfig model = family.member(k);
      ASSERT_NO_THROW(model.validate());
      ASSERT_EQ(model.layers, k);
      ASSERT_GE(model.hidden, before.hidden);
      ASSERT_GE(model.key_heads(), before.key_heads());
      ASSERT_GE(model.mlp_elems(), before.mlp_elems());
      if (k > 1) { ASSERT_GT(model.parameter_elems(), before.parameter_elems()); }
      before = model;
    }
  }
}

TEST_P(FamilyTest, MembersDifferInSizeAndInNoPart) {
  for (const Family& family : families()) {
    SCOPED_TRACE(family.rule());
    const DecoderConfig& published = family.published;
    for (std::int64_t k = 1; k <= family.last(); ++k) {
      DecoderConfig model = family.member(k);
      ASSERT_EQ(model.head_size(), published.head_size());
      ASSERT_EQ(model.heads * published.key_heads(), published.heads * model.key_heads());
      // All others are the published ones.
      model.layers = published.layers;
      model.hidden = published.hidden;
      model.heads = published.heads;
      model.kv_heads = published.kv_heads;
      model.head_elems = published.head_elems;
      model.wide = published.wide;
      model.first_window_layer = published.first_window_layer;
      ASSERT_EQ(model, published);
    }
  }
}

TEST_P(FamilyTest, SizesAreTheirShareOfThePublishedOnes) {
  const Family family = family_named(GetParam());
  const DecoderConfig& published = family.published;
  const auto layers = static_cast<double>(published.layers);
  for (std::int64_t k = 1; k <= family.last(); ++k) {
    const DecoderConfig model = family.member(k);
    const double share = static_cast<double>(k) / layers;
    const auto near = [&](std::int64_t size, double expected, std::int64_t unit) {
      // bound: half a unit, and the rounding of `expected` in fp64
      return size == unit || 2 * std::abs(static_cast<double>(size) - expected) <=
                                 static_cast<double>(unit) * (1 + 1e-9);
    };
    const bool by_heads = published.heads * published.head_size() == published.hidden;
    ASSERT_TRUE(near(model.hidden, share * static_cast<double>(published.hidden),
                     by_heads ? published.head_size() : std::gcd(published.hidden, 64)))
        << k << " layers, hidden " << model.hidden;
    ASSERT_TRUE(near(model.heads, share * static_cast<double>(published.heads),
                     published.heads / published.key_heads()))
        << k << " layers, heads " << model.heads;
    const double wide = static_cast<double>(published.mlp_elems()) *
                        static_cast<double>(model.hidden) / static_cast<double>(published.hidden);
    ASSERT_TRUE(near(model.mlp_elems(), wide, std::gcd(published.mlp_elems(), 64)))
        << k << " layers, MLP " << model.mlp_elems();
  }
}

TEST(Families, OfGPT2AreOfWholeHeadsAndFourTimesAsWideInMLPs) {
  const auto check = [](const Family& family, std::int64_t head, std::int64_t aspect) {
    SCOPED_TRACE(family.rule());
    for (std::int64_t k = 1; k <= family.last(); ++k) {
      const std::int64_t heads = std::max<std::int64_t>(1, (2 * aspect * k + head) / 2 / head);
      const DecoderConfig expected{k, head * heads, heads, family.published.vocab,
                                   family.published.seq};
      ASSERT_EQ(family.member(k), expected);
    }
  };
  for (const std::int64_t aspect : {1, 32, 48, 64, 100, 128, 1024}) {
    const Words asked = {"--aspect", std::to_string(aspect)};
    check(family_named("gpt2", asked), 64, aspect);
    check(family_named("gpt-nano", asked), 32, aspect);
  }
  check(family_of(settings_of({})), 64, 64);
  check(family_named("gpt-nano"), 32, 32);
  check(family_named("gpt2", {"--vocab", "1000", "--seq", "4096"}), 64, 64);
}

TEST(Families, OfLlamaAreAsWideAsTheirDepthSays) {
  const DecoderConfig member = family_named("llama3-8b").member(13);
  EXPECT_EQ(member.hidden, 13 * 128);
  EXPECT_EQ(member.mlp_elems(), 13 * 448);
  EXPECT_EQ(member.key_heads(), 3);
  EXPECT_EQ(member.heads, 12);
  EXPECT_EQ(member.head_size(), 128);
}

TEST(Families, KeepTheShareOfLayersWithoutAWindow) {
  const Family family = family_named(test::hub_folder("qwen2"));  // the second of two has one
  for (std::int64_t k = 1; k <= 64; ++k) {
    const DecoderConfig model = family.member(k);
    ASSERT_EQ(model.window, family.published.window);
    ASSERT_EQ(model.first_window_layer, (k + 1) / 2);
  }
  EXPECT_THAT(family.rule(), HasSubstr(", windows from layer k/2 (rounded) on"));
}

TEST(Families, StateTheirRule) {
  struct Case {
    Words words;
    const char* rule;
  };
  const std::vector<Case> cases = {
      {{}, "layers = k, hidden = 64 k, heads = k"},
      {{"--aspect", "128"}, "layers = k, hidden = 128 k, heads = 2 k"},
      {{"--aspect", "100"},
       "layers = k, hidden = 100 k rounded to a multiple of 64, heads = hidden / 64"},
      {{"--model", "gpt-nano"}, "layers = k, hidden = 32 k, heads = k"},
      {{"--model", "gpt2-medium"},
       "layers = k, hidden = 128/3 k rounded to a multiple of 64, heads = hidden / 64"},
      {{"--model", "llama2-7b"},
       "layers = k, hidden = 128 k, heads = k, MLP = 43/16 hidden rounded to a multiple of 64"},
      {{"--model", "llama3-8b"},
       "layers = k, hidden = 128 k, key heads = k/4 rounded to at least 1, query heads = 4 times "
       "as many, head size 128, MLP = 7/2 hidden"},
      {{"--model", "llama3-8b", "--aspect", "512"},
       "layers = k, hidden = 512 k, key heads = k, query heads = 4 times as many, head size 128, "
       "MLP = 7/2 hidden"},
      {{"--model", "llama3-70b"},
       "layers = k, hidden = 512/5 k rounded to a multiple of 128, key heads = k/10 rounded to at "
       "least 1, query heads = 8 times as many, head size 128, MLP = 7/2 hidden"},
      {{"--model", "qwen3-0.6b"},
       "layers = k, hidden = 256/7 k rounded to a multiple of 64, key heads = 2/7 k rounded to at "
       "least 1, query heads = 2 times as many, head size 128, MLP = 3 hidden"},
  };
  for (const Case& c : cases) {
    EXPECT_EQ(family_of(settings_of(c.words)).rule(), c.rule) << testing::PrintToString(c.words);
  }
}

TEST(Families, AreMeasuredInModelsThatRunInSeconds) {
  EXPECT_EQ(family_of(settings_of({"--measure"})).name, "gpt-nano");
  EXPECT_EQ(scale_budget(settings_of({"--measure"})), std::size_t{64} << 20);
  EXPECT_EQ(family_of(settings_of({"--measure", "--model", "qwen3-0.6b"})).name, "qwen3-0.6b");
  EXPECT_EQ(scale_budget(settings_of({"--measure", "--model", "qwen3-0.6b"})),
            std::size_t{1} << 30);
  EXPECT_EQ(scale_budget(settings_of({"--measure", "--budget", "3KiB"})), std::size_t{3} << 10);
  EXPECT_EQ(scale_budget(settings_of({"--model", "gpt-nano"})), std::size_t{24} << 30);
}

TEST(Families, OfUnknownModelsAreRefused) {
  EXPECT_THAT([] { (void)family_named("llama"); },
              ThrowsMessage<ConfigError>(
                  testing::AllOf(HasSubstr("\"llama\" does not exist"), HasSubstr("llama3-8b"))));
  EXPECT_THAT([] { (void)family_named("no/such"); },
              ThrowsMessage<ConfigError>(HasSubstr("--model no/such: there is no such folder")));
}

}  // namespace
}  // namespace tessera::tools::family_test
