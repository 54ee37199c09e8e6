// The contents of a checkpoint's folder: checksums, layout, manifest.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/checksum.hpp"
#include "checkpoint/layout.hpp"
#include "checkpoint/manifest.hpp"
#include "support/small_checkpoint.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/reader.hpp"
#include "tessera/checkpoint/safetensors.hpp"
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::format_test {
namespace {

using test::message_of;
using test::small_state;
using test::TemporaryFolder;
using test::write_checkpoint;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::byte> random_bytes(std::size_t count) {
  std::mt19937_64 random{11};
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) { byte = static_cast<std::byte>(random()); }
  return bytes;
}

// The tensor has three blocks and ends within a chunk.
TEST(TensorSums, PartsInAnyOrderAddUpToTheWhole) {
  const std::vector<std::byte> bytes = random_bytes(2 * checkpoint::kChecksumBlock + 1'000);
  checkpoint::TensorSums whole{bytes.size(), 256};
  whole.add(0, bytes);
  ASSERT_EQ(whole.sums().size(), 3U);
  std::uint64_t last = 0;  // the formula, on the last block
  const std::uint64_t chunks = 2 * checkpoint::kChecksumBlock / 256;
  for (std::uint64_t c = chunks; c * 256 < bytes.size(); ++c) {
    last += XXH3_64bits_withSeed(bytes.data() + c * 256,
                                 std::min<std::size_t>(256, bytes.size() - c * 256), c);
  }
  EXPECT_EQ(whole.sums()[2], last);

  std::mt19937 random{3};
  std::vector<std::uint64_t> cuts{0, bytes.size()};
  for (int i = 0; i < 50; ++i) { cuts.push_back(random() % (bytes.size() / 256) * 256); }
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::size_t> order(cuts.size() - 1);
  for (std::size_t i = 0; i < order.size(); ++i) { order[i] = i; }
  std::shuffle(order.begin(), order.end(), random);
  checkpoint::TensorSums one{bytes.size(), 256};
  checkpoint::TensorSums other{bytes.size(), 256};
  for (const std::size_t i : order) {
    (i % 3 == 0 ? one : other)
        .add(cuts[i], std::span{bytes}.subspan(cuts[i], cuts[i + 1] - cuts[i]));
  }
  for (std::size_t b = 0; b < 3; ++b) { one.add_sum(b, other.sums()[b]); }
  EXPECT_EQ(one.sums(), whole.sums());
}

TEST(TensorSums, DetectAMissingMovedOrChangedPart) {
  const std::vector<std::byte> bytes(1'024, std::byte{7});  // chunks differ only in position
  const auto sum = [&](std::vector<std::uint64_t> parts) {
    checkpoint::TensorSums sums{bytes.size(), 64};
    for (const std::uint64_t at : parts) { sums.add(at, std::span{bytes}.first(128)); }
    return sums.sums().front();
  };
  const std::uint64_t right = sum({0, 128, 256});
  EXPECT_EQ(right, sum({256, 0, 128}));
  EXPECT_NE(right, sum({0, 128}));
  EXPECT_NE(right, sum({0, 128, 384}));
  EXPECT_NE(right, sum({0, 128, 128}));
}

TEST(TensorSums, RefusesPartsThatDivideAChunk) {
  checkpoint::TensorSums sums{100, 64};
  const std::vector<std::byte> bytes(100);
  EXPECT_THROW(sums.add(32, std::span{bytes}.first(68)), ContractError);
  EXPECT_THROW(sums.add(0, std::span{bytes}.first(63)), ContractError);
  EXPECT_THROW(sums.add(64, std::span{bytes}.first(64)), ContractError);
  EXPECT_THROW((checkpoint::TensorSums{100, 0}), ContractError);
  EXPECT_THROW((checkpoint::TensorSums{100, 96}), ContractError);
  EXPECT_TRUE((checkpoint::TensorSums{0, 64}).sums().empty());
}

TEST(CheckpointLayout, SetsAreDividedAtTensorsWithAnIndexAsHuggingFaceHasIt) {
  const auto tensor = [](std::string name, std::int64_t elems) {
    return checkpoint::CheckpointTensor{std::move(name), "F32", Shape{elems}, 256};
  };
  // Bytes by file: 40, 40 | 20, 60 | 400, more than the limit | 4
  const checkpoint::CheckpointLayout layout{{{"model",
                                              {tensor("z", 10), tensor("b", 10), tensor("c", 5),
                                               tensor("d", 15), tensor("e", 100), tensor("f", 1)}},
                                             {"optimizer", {tensor("z", 20)}},
                                             {"extras", {}}},
                                            80};
  std::vector<std::string> names;
  for (const checkpoint::CheckpointFile& file : layout.files()) {
    names.push_back(file.name);
    EXPECT_EQ(file.header.size() % 8, 0U);
  }
  EXPECT_THAT(names,
              ElementsAre("model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                          "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                          "optimizer.safetensors"));
  ASSERT_EQ(layout.indices().size(), 1U);
  EXPECT_EQ(layout.indices()[0].name, "model.safetensors.index.json");
  EXPECT_EQ(layout.indices()[0].text, R"({
  "metadata": {
    "total_size": 564
  },
  "weight_map": {
    "b": "model-00001-of-00004.safetensors",
    "c": "model-00002-of-00004.safetensors",
    "d": "model-00002-of-00004.safetensors",
    "e": "model-00003-of-00004.safetensors",
    "f": "model-00004-of-00004.safetensors",
    "z": "model-00001-of-00004.safetensors"
  }
}
)");
}

// Readers that map a file need aligned elements.
TEST(CheckpointLayout, EveryTensorLiesOnAMultipleOfItsElements) {
  const checkpoint::CheckpointLayout layout = test::layout_of(small_state(), 1'000);
  const std::map<std::string, std::uint64_t> width{{"U8", 1}, {"U16", 2}, {"BF16", 2}, {"F32", 4}};
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    EXPECT_EQ(layout.places()[t].first_byte % width.at(layout.tensors()[t].dtype), 0U)
        << layout.tensors()[t].name;
  }
}

TEST(CheckpointLayout, RefusesNamesAndDtypesThatAFileCannotHold) {
  const auto refusal = [](std::vector<checkpoint::CheckpointTensor> tensors,
                          std::uint64_t shard_bytes) {
    return message_of<ContractError>(
        [&] { checkpoint::CheckpointLayout{{{"model", std::move(tensors)}}, shard_bytes}; });
  };
  for (const std::uint64_t shard_bytes : {4, 1'000}) {
    EXPECT_THAT(refusal({{"x", "F32", {1}, 256}, {"x", "F32", {1}, 256}}, shard_bytes),
                HasSubstr("'x'"));
    EXPECT_THAT(refusal({{"", "F32", {1}, 256}}, shard_bytes), HasSubstr("no name"));
    EXPECT_THAT(refusal({{"\xFF", "F32", {1}, 256}}, shard_bytes), HasSubstr("not UTF-8"));
    EXPECT_THAT(refusal({{"x", "F4", {1}, 256}}, shard_bytes), HasSubstr("unknown dtype F4"));
  }
  EXPECT_THROW((checkpoint::CheckpointLayout{{}, 0}), ContractError);
}

// 70 billion parameters in bf16 with fp32 masters and two fp32 moments, in the shapes of Llama 2.
std::vector<checkpoint::CheckpointLayout::Set> large_model() {
  checkpoint::CheckpointLayout::Set model{"model", {}};
  checkpoint::CheckpointLayout::Set optimizer{"optimizer", {}};
  const auto add = [&](const std::string& name, const Shape& shape) {
    model.tensors.push_back({name, "BF16", shape, 128});
    for (const char* const state : {".master", ".moment_0", ".moment_1"}) {
      optimizer.tensors.push_back({name + state, "F32", shape, 256});
    }
  };
  add("model.embed_tokens.weight", {32'000, 8'192});
  for (int layer = 0; layer < 80; ++layer) {
    const std::string before = fmt::format("model.layers.{}.", layer);
    add(before + "self_attn.q_proj.weight", {8'192, 8'192});
    add(before + "self_attn.k_proj.weight", {1'024, 8'192});
    add(before + "self_attn.v_proj.weight", {1'024, 8'192});
    add(before + "self_attn.o_proj.weight", {8'192, 8'192});
    add(before + "mlp.gate_proj.weight", {28'672, 8'192});
    add(before + "mlp.up_proj.weight", {28'672, 8'192});
    add(before + "mlp.down_proj.weight", {8'192, 28'672});
    add(before + "input_layernorm.weight", {8'192});
    add(before + "post_attention_layernorm.weight", {8'192});
  }
  add("model.norm.weight", {8'192});
  add("lm_head.weight", {32'000, 8'192});
  return {std::move(model), std::move(optimizer)};
}

Manifest manifest_of(const checkpoint::CheckpointLayout& layout) {
  Manifest manifest;
  manifest.state = test::counters_after(0);
  std::mt19937_64 random{1};
  for (const checkpoint::CheckpointFile& file : layout.files()) {
    manifest.files[file.name] = file.bytes;
  }
  for (std::size_t t = 0; t < layout.tensors().size(); ++t) {
    const checkpoint::CheckpointTensor& tensor = layout.tensors()[t];
    const checkpoint::TensorPlace& place = layout.places()[t];
    std::vector<std::uint64_t> sums((place.bytes + checkpoint::kChecksumBlock - 1) /
                                    checkpoint::kChecksumBlock);
    for (std::uint64_t& sum : sums) { sum = random(); }
    std::string role = tensor.dtype == "BF16" ? "weight" : "moment";
    if (tensor.name.ends_with(".master")) { role = "master"; }
    manifest.tensors.push_back({tensor.name, std::move(role), tensor.dtype, tensor.shape,
                                tensor.chunk_bytes, layout.files()[place.file].name,
                                place.first_byte, place.bytes, std::move(sums)});
  }
  return manifest;
}

TEST(CheckpointFormat, SeventyBillionParametersOnAThousandRanksTakeAMomentToLayOut) {
  using Clock = std::chrono::steady_clock;
  const auto milliseconds_since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  };
  const std::vector<checkpoint::CheckpointLayout::Set> sets = large_model();
  constexpr int ranks = TESSERA_SANITIZED ? 16 : 1'024;
  double slowest = 0;
  double all = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto start = Clock::now();
    const checkpoint::CheckpointLayout layout{sets, std::uint64_t{5} << 30};
    const double took = milliseconds_since(start);
    slowest = std::max(slowest, took);
    all += took;
  }
  const checkpoint::CheckpointLayout layout{sets, std::uint64_t{5} << 30};
  const Manifest manifest = manifest_of(layout);
  auto start = Clock::now();
  const std::string text = checkpoint::format_manifest(manifest);
  const double formatted = milliseconds_since(start);
  start = Clock::now();
  EXPECT_EQ(checkpoint::parse_manifest("manifest", text).tensors.size(), manifest.tensors.size());
  std::cout << fmt::format(
      "{} tensors in {} files. Layout: {:.2f} ms a rank, slowest {:.2f} ms, {} ranks one after "
      "the other {:.0f} ms. Manifest: {} bytes, formatted in {:.1f} ms, parsed in {:.1f} ms\n",
      layout.tensors().size(), layout.files().size(), all / ranks, slowest, ranks, all, text.size(),
      formatted, milliseconds_since(start));
  EXPECT_LT(text.size(), 10'000'000U);
#if !TESSERA_SANITIZED
  EXPECT_LT(slowest + formatted, 1'000.0);
#endif
}

TEST(Manifest, RoundTrips) {
  for (const std::uint64_t shard_bytes : {60, 1'000}) {
    const std::vector<test::StateTensor> tensors = small_state();
    const Manifest manifest = test::manifest_of(tensors, test::layout_of(tensors, shard_bytes));
    const std::string text = checkpoint::format_manifest(manifest);
    const Manifest back = checkpoint::parse_manifest("manifest", text);
    EXPECT_EQ(checkpoint::format_manifest(back), text);
    EXPECT_EQ(back.step, 12);
    EXPECT_EQ(back.values, manifest.values);
    EXPECT_EQ(back.files, manifest.files);
    ASSERT_EQ(back.tensors.size(), manifest.tensors.size());
    EXPECT_EQ(back.tensors[0].shape, (Shape{5, 7}));
    EXPECT_EQ(back.tensors[0].sums, manifest.tensors[0].sums);
    EXPECT_TRUE(nlohmann::json::accept(text));
  }
}

TEST(Manifest, ValuesThatAreNotTextAreRefusedWhenItIsWritten) {
  Manifest manifest;
  manifest.values["x"] = "\xFF\xFE";
  EXPECT_THAT(message_of<ContractError>([&] { (void)checkpoint::format_manifest(manifest); }),
              HasSubstr("not UTF-8"));
}

// The text with a matching checksum, as a hostile author would write it.
std::string sealed(std::string text) {
  text.erase(text.rfind("\"checksum\""));
  return text + checkpoint::manifest_seal(text);
}

TEST(Manifest, DamageIsRefusedWithItsPlace) {
  const std::vector<test::StateTensor> tensors = small_state();
  const std::string good =
      checkpoint::format_manifest(test::manifest_of(tensors, test::layout_of(tensors, 1'000)));
  struct Damage {
    std::string from;
    std::string to;
    std::vector<std::string> expected;
  };
  const std::string sums = good.substr(good.find("\"sums\": \"") + 9, 16);
  const std::vector<Damage> table = {
      {"\"format\": 1", "\"format\": 2", {"format 2", "reads format 1"}},
      {"\"format\": 1", "\"format\": \"1\"", {"'format'"}},
      {"\"step\": 12", "\"step\": -12", {"'step'"}},
      {"\"step\": 12", "\"step\": 18446744073709551615", {"'step'", "at most"}},
      {"\"step\": 12", "\"stop\": 12", {"'step'"}},
      {"\"step\": 12", "\"step\": 12,\n\"step\": 13", {"'step' twice"}},
      {"\"steps\": \"12\"", "\"steps\": 12", {"'state'", "'steps'"}},
      {"\"values\": {", "\"values\": 1, \"others\": {", {"'values'"}},
      {"\"model.safetensors\": ", "\"../model.safetensors\": ", {"../model.safetensors"}},
      {"\"model.safetensors\": ", "\"model.safetensors\": -", {"size of model.safetensors"}},
      {"\"file\": \"model.safetensors\"",
       "\"file\": \"other\"",
       {"'h.weight'", "not listed in 'files'"}},
      {"\"role\": \"weight\"", "\"role\": \"wait\"", {"'h.weight'", "role 'wait'"}},
      {"\"dtype\": \"BF16\"", "\"dtype\": \"F4\"", {"'h.weight'", "dtype F4"}},
      {"\"dtype\": \"BF16\"", "\"dtype\": \"F32\"", {"'h.weight'", "70 bytes", "35 elements"}},
      {"[5, 7]", "[5, 8]", {"'h.weight'", "40 elements"}},
      {"[5, 7]", "[-5, 7]", {"'h.weight'", "shape"}},
      {"[5, 7]", "[4294967296, 4294967296]", {"'h.weight'", "2^63"}},
      {"[5, 7]", "[4611686018427387904]", {"'h.weight'"}},
      {"[5, 7]", "35", {"'h.weight'", "'shape'"}},
      {"\"chunk_bytes\": 128", "\"chunk_bytes\": 0", {"'h.weight'", "'chunk_bytes' is 0"}},
      {"\"chunk_bytes\": 128", "\"chunk_bytes\": 64", {"'h.weight'", "is 64, expected 128"}},
      {"\"chunk_bytes\": 4,", "\"chunk_bytes\": 256,", {"moment_0.scales'", "expected 4"}},
      {"\"role\": \"moment\", \"dtype\": \"U8\"",
       "\"role\": \"moment\", \"dtype\": \"I8\"",
       {"moment_0'", "never I8"}},
      {"\"skipped\": \"0\"", "\"skipped\": \"-1\"", {"'skipped' is '-1'"}},
      {"\"good_steps\": \"0\",\n", "", {"'good_steps' is ''"}},
      {"\"loss_scale\": \"65536\"", "\"loss_scale\": \"inf\"", {"'loss_scale' is inf"}},
      {"\"chunk_bytes\": 128", "\"chunk_bytes\": 100", {"'h.weight'", "'chunk_bytes' is 100"}},
      {"\"bytes\": 70", "\"bytes\": 9223372036854775807", {"'h.weight'"}},
      {"\"bytes\": 70", "\"bytes\": 7e1", {"'h.weight'", "'bytes'"}},
      {"\"sums\": \"" + sums, "\"sums\": \"", {"'h.weight'", "0 digits"}},
      {"\"sums\": \"" + sums, "\"sums\": \"" + sums + sums, {"'h.weight'", "32 digits"}},
      {"\"sums\": \"" + sums, "\"sums\": \"X" + sums.substr(1), {"'h.weight'", "hexadecimal"}},
      {"\"name\": \"frozen\"", "\"name\": \"h.weight\"", {"'h.weight'", "twice"}},
      {"\"name\": \"h.weight\", ", "", {"tensor 0", "'name'"}},
      {"\"tensors\": [", "\"tensors\": [7,", {"tensor 0", "object"}},
      {"\"tensors\": [", "\"tensors\": {}, \"x\": [", {"'tensors'"}},
      {"\"tensors\": [", "\"tensors\": [", {}},
  };
  for (const Damage& damage : table) {
    SCOPED_TRACE(damage.from + " -> " + damage.to);
    const std::size_t at = good.find(damage.from);
    ASSERT_NE(at, std::string::npos);
    std::string text = good;
    text.replace(at, damage.from.size(), damage.to);
    if (damage.expected.empty()) {
      EXPECT_NO_THROW((void)checkpoint::parse_manifest("DIR/manifest.json", sealed(text)));
      continue;
    }
    const std::string message = message_of<FormatError>(
        [&] { (void)checkpoint::parse_manifest("DIR/manifest.json", sealed(text)); });
    EXPECT_THAT(message, HasSubstr("DIR/manifest.json"));
    for (const std::string& word : damage.expected) { EXPECT_THAT(message, HasSubstr(word)); }
  }
}

TEST(Manifest, TensorsThatOverlapOrLieBeyondTheirFileAreRefused) {
  const std::vector<test::StateTensor> tensors = small_state();
  const Manifest good = test::manifest_of(tensors, test::layout_of(tensors, 1'000));
  const auto refusal = [&](auto&& change) {
    Manifest manifest = good;
    change(manifest);
    return message_of<FormatError>(
        [&] { (void)checkpoint::parse_manifest("m", checkpoint::format_manifest(manifest)); });
  };
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[0].first_byte -= 4; }),
              AllOf(HasSubstr("'frozen'"), HasSubstr("'h.weight'"), HasSubstr("overlap")));
  EXPECT_THAT(refusal([](Manifest& m) { m.tensors[3].first_byte = INT64_MAX; }),
              AllOf(HasSubstr("'scale'"), HasSubstr("model.safetensors")));
  EXPECT_THAT(refusal([](Manifest& m) { m.files["model.safetensors"] -= 1; }),
              AllOf(HasSubstr("'scale'"), HasSubstr("ends at byte")));
}

// What `load` would refuse, `verify` must not call whole.
TEST(Manifest, StateThatNoModelLoadsIsRefused) {
  struct Change {
    std::function<void(std::vector<test::StateTensor>&)> change;
    std::vector<std::string> expected;
  };
  const std::vector<Change> table = {
      {[](auto& t) { t[4].name = "other.remainder"; }, {"'other.remainder'", "no weight"}},
      {[](auto& t) { t[5].name = "h.weight.moment"; }, {"'h.weight.moment'", "no weight"}},
      {[](auto& t) { t[5].name = "h.weight.moment_1"; }, {"'h.weight.moment_1'", "no scales"}},
      {[](auto& t) { t[4].shape = {7, 5}; }, {"shape [7, 5]", "[5, 7] would fit"}},
      {[](auto& t) { t[6].shape = {1, 1}; }, {"shape [1, 1]", "[1] would fit"}},
      {[](auto& t) { t.erase(t.begin() + 6); }, {"'h.weight.moment_0'", "no scales"}},
      {[](auto& t) { t.erase(t.begin()); }, {"'h.weight.remainder'", "no weight"}},
  };
  for (const Change& one : table) {
    std::vector<test::StateTensor> tensors = small_state();
    one.change(tensors);
    const std::string text =
        checkpoint::format_manifest(test::manifest_of(tensors, test::layout_of(tensors, 1'000)));
    const std::string message =
        message_of<FormatError>([&] { (void)checkpoint::parse_manifest("m", text); });
    for (const std::string& word : one.expected) { EXPECT_THAT(message, HasSubstr(word)); }
  }
  const std::vector<test::StateTensor> tensors = small_state();
  Manifest manifest = test::manifest_of(tensors, test::layout_of(tensors, 1'000));
  manifest.files["empty.safetensors"] = 8;
  EXPECT_THAT(message_of<FormatError>([&] {
                (void)checkpoint::parse_manifest("m", checkpoint::format_manifest(manifest));
              }),
              HasSubstr("no tensor in empty.safetensors"));
}

// However the text is cut or extended, the only error is FormatError.
TEST(Manifest, ATextThatEndsAnywhereIsRefused) {
  const std::vector<test::StateTensor> tensors = small_state();
  const std::string good =
      checkpoint::format_manifest(test::manifest_of(tensors, test::layout_of(tensors, 1'000)));
  for (std::size_t size = 0; size < good.size(); ++size) {
    ASSERT_THROW((void)checkpoint::parse_manifest("m", std::string_view{good}.substr(0, size)),
                 FormatError)
        << size;
  }
  EXPECT_THROW((void)checkpoint::parse_manifest("m", std::string(100'000, '[')), FormatError);
  EXPECT_THROW((void)checkpoint::parse_manifest("m", good + " "), FormatError);
}

}  // namespace
}  // namespace tessera::format_test
