// Reads checkpoints in a folder, whole and damaged.
#include "tessera/checkpoint/reader.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "checkpoint/load_source.hpp"
#include "support/small_checkpoint.hpp"
#include "support/temporary_folder.hpp"
#include "support/working_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::reader_test {
namespace {

using test::message_of;
using test::read_bytes;
using test::small_state;
using test::TemporaryFolder;
using test::write_bytes;
using test::write_checkpoint;
using testing::AllOf;
using testing::HasSubstr;

void verify(const std::filesystem::path& folder) {
  CheckpointReader{folder}.verify();
}

TEST(CheckpointReader, ReadsEveryTensorAndVerifies) {
  for (const std::uint64_t shard_bytes : {60, 1'000}) {
    const TemporaryFolder folder;
    write_checkpoint(folder / "step-00000012", small_state(), shard_bytes);
    CheckpointReader reader{folder / "step-00000012"};
    std::uint64_t bytes = 0;
    for (const test::StateTensor& expected : small_state()) {
      const ManifestTensor* const tensor = reader.find(expected.name, expected.role);
      ASSERT_NE(tensor, nullptr) << expected.name;
      EXPECT_EQ(tensor->shape, expected.shape);
      std::string data(tensor->bytes, '\0');
      reader.read_bytes(*tensor, 0, std::as_writable_bytes(std::span{data}));
      EXPECT_EQ(data, expected.data) << expected.name;
      bytes += tensor->bytes;
    }
    EXPECT_EQ(reader.find("h.weight", "master"), nullptr);
    std::uint64_t told = 0;
    reader.verify([&](std::uint64_t more) { told += more; });
    EXPECT_EQ(told, bytes);
    std::string two(2, '\0');
    EXPECT_THROW(reader.read_bytes(*reader.find("scale", "weight"), 1,
                                   std::as_writable_bytes(std::span{two})),
                 ContractError);
  }
}

TEST(CheckpointReader, WidensElementsThatAreFloats) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path());
  const CheckpointReader reader{folder.path()};
  const ManifestTensor& tensor = *reader.find("h.weight", "weight");
  std::vector<std::uint16_t> halves(35);
  std::memcpy(halves.data(), small_state().front().data.data(), 70);
  std::vector<float> values(3);
  reader.read(tensor, 32, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(std::bit_cast<std::uint32_t>(values[i]), std::uint32_t{halves[32 + i]} << 16U) << i;
  }
  EXPECT_THROW(reader.read(tensor, 33, values), ContractError);
  EXPECT_THROW(reader.read(tensor, -1, values), ContractError);
  EXPECT_THAT(message_of<FormatError>(
                  [&] { reader.read(*reader.find("h.weight.moment_0", "moment"), 0, values); }),
              AllOf(HasSubstr("h.weight.moment_0"), HasSubstr("has dtype U8")));
}

TEST(CheckpointReader, RefusesBuffersTooSmallForABlockAndTensorsOfOtherReaders) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path());
  const CheckpointReader reader{folder.path()};
  const ManifestTensor& tensor = *reader.find("h.weight", "weight");
  std::vector<std::byte> buffer(70);
  EXPECT_EQ(reader.read_block(tensor, 0, buffer).size(), 70U);
  EXPECT_THROW((void)reader.read_block(tensor, 0, std::span{buffer}.first(69)), ContractError);
  EXPECT_THROW((void)reader.read_block(tensor, 1, buffer), ContractError);
  const ManifestTensor other = tensor;
  std::vector<float> values(1);
  EXPECT_THROW((void)reader.read_block(other, 0, buffer), ContractError);
  EXPECT_THROW(reader.read_bytes(other, 0, buffer), ContractError);
  EXPECT_THROW(reader.read(other, 0, values), ContractError);
}

TEST(CheckpointReader, ReturnsTheTextOfProvenance) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path());
  const CheckpointReader reader{folder.path()};
  EXPECT_EQ(reader.provenance(), R"({"ranks": 4, "strategy": "zero3"})");
  std::filesystem::remove(folder / checkpoint::kProvenanceName);
  EXPECT_THAT(message_of<FormatError>([&] { (void)reader.provenance(); }),
              HasSubstr((folder / checkpoint::kProvenanceName).string()));
}

// Flips every byte of every file but provenance.json, in a checkpoint with an index.
TEST(CheckpointReader, AnyFlippedByteIsFound) {
  const TemporaryFolder folder;
  write_checkpoint(folder.path(), small_state(), 60);
  constexpr std::size_t apart =
      TESSERA_SANITIZED ? 19 : 1;  // under a sanitizer some of the positions suffice
  std::size_t flipped = 0;
  for (const auto& entry : std::filesystem::directory_iterator{folder.path()}) {
    if (entry.path().filename() == checkpoint::kProvenanceName) { continue; }
    const std::string good = read_bytes(entry.path());
    // Flipped in place: some file systems write an overwritten file to disk at once.
    std::fstream file{entry.path(), std::ios::binary | std::ios::in | std::ios::out};
    const auto put = [&](std::size_t at, char byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
    };
    for (std::size_t at = 0; at < good.size(); at += apart) {
      // Flips one bit, chosen by position, then the whole byte.
      for (const unsigned change : {1U << (at % 8), 0xFFU}) {
        put(at, static_cast<char>(static_cast<unsigned char>(good[at]) ^ change));
        ++flipped;
        try {
          verify(folder.path());
          ADD_FAILURE() << entry.path() << " byte " << at << " changed by " << change;
        } catch (const FormatError& error) {
          ASSERT_THAT(error.what(), HasSubstr(folder.path().string()));
        }
      }
      put(at, good[at]);
    }
  }
  EXPECT_GT(flipped, 5'000U / apart);
  EXPECT_NO_THROW(verify(folder.path()));
}

/// The contents that are damaged, by name.
std::vector<std::string> damaged_in(const std::filesystem::path& folder) {
  const CheckpointReader reader{folder, {}};
  std::vector<std::string> names;
  for (const Content content : kContents) {
    if (!reader.verdict_on(content).damage.empty()) { names.emplace_back(to_string(content)); }
  }
  return names;
}

TEST(CheckpointReader, DamageIsThatOfItsContentAlone) {
  const TemporaryFolder folder;
  const Manifest manifest = write_checkpoint(folder.path());
  EXPECT_THAT(damaged_in(folder.path()), testing::IsEmpty());
  for (const ManifestTensor& tensor : manifest.tensors) {
    if (tensor.bytes == 0) { continue; }
    const std::string good = read_bytes(folder / tensor.file);
    std::string bytes = good;
    bytes[tensor.first_byte] = static_cast<char>(bytes[tensor.first_byte] ^ 1);
    write_bytes(folder / tensor.file, bytes);
    EXPECT_THAT(damaged_in(folder.path()),
                testing::ElementsAre(std::string{to_string(content_of(tensor.role))}))
        << tensor.name;
    write_bytes(folder / tensor.file, good);
  }
  std::filesystem::remove(folder / "optimizer.safetensors");
  EXPECT_THAT(damaged_in(folder.path()), testing::ElementsAre("master weights", "optimizer state"));
}

TEST(CheckpointReader, DamagedDataIsNamedByFileTensorAndBytes) {
  const TemporaryFolder folder;
  const Manifest manifest = write_checkpoint(folder.path());
  const ManifestTensor& tensor = manifest.tensors[5];
  std::string bytes = read_bytes(folder / tensor.file);
  bytes[tensor.first_byte + 3] = static_cast<char>(bytes[tensor.first_byte + 3] ^ 1);
  write_bytes(folder / tensor.file, bytes);
  EXPECT_THAT(message_of<FormatError>([&] { verify(folder.path()); }),
              AllOf(HasSubstr((folder / "optimizer.safetensors").string()),
                    HasSubstr("'h.weight.moment_0'"),
                    HasSubstr(fmt::format("bytes {} to {}", tensor.first_byte,
                                          tensor.first_byte + tensor.bytes - 1))));
}

TEST(CheckpointReader, RefusesIncompleteFolders) {
  struct Case {
    std::string what;
    std::function<void(const std::filesystem::path&)> damage;
    std::vector<std::string> expected;
  };
  namespace fs = std::filesystem;
  const std::vector<Case> table = {
      {"no manifest",
       [](const fs::path& f) { fs::remove(f / checkpoint::kManifestName); },
       {"no checkpoint", "manifest.json"}},
      {"no folder", [](const fs::path& f) { fs::remove_all(f); }, {"no checkpoint"}},
      {"a missing file",
       [](const fs::path& f) { fs::remove(f / "optimizer-00002-of-00002.safetensors"); },
       {"optimizer-00002-of-00002.safetensors", "No such file"}},
      {"a missing index",
       [](const fs::path& f) { fs::remove(f / "model.safetensors.index.json"); },
       {"model.safetensors.index.json", "No such file"}},
      {"a file that was cut",
       [](const fs::path& f) {
         fs::resize_file(f / "optimizer-00002-of-00002.safetensors",
                         fs::file_size(f / "optimizer-00002-of-00002.safetensors") - 1);
       },
       {"optimizer-00002-of-00002.safetensors", "bytes, but the manifest says"}},
      {"a file that is empty",
       [](const fs::path& f) { fs::resize_file(f / "extras.safetensors", 0); },
       {"extras.safetensors", "has 0 bytes"}},
      {"a folder in place of a file",
       [](const fs::path& f) {
         fs::remove(f / "extras.safetensors");
         fs::create_directory(f / "extras.safetensors");
       },
       {"extras.safetensors", "not a regular file"}},
      {"two files changed about",
       [](const fs::path& f) {
         fs::rename(f / "model-00001-of-00002.safetensors", f / "x");
         fs::rename(f / "model-00002-of-00002.safetensors", f / "model-00001-of-00002.safetensors");
         fs::rename(f / "x", f / "model-00002-of-00002.safetensors");
       },
       {"model-0000", "the manifest says"}},
      {"a header of another tensor",
       [](const fs::path& f) {
         std::string bytes = read_bytes(f / "extras.safetensors");
         bytes.replace(bytes.find("running"), 7, "another");
         write_bytes(f / "extras.safetensors", bytes);
       },
       {"extras.safetensors", "'running' is missing"}},
      {"a header of another shape",
       [](const fs::path& f) {
         std::string bytes = read_bytes(f / "extras.safetensors");
         bytes.replace(bytes.find("[2,2]"), 5, "[4,1]");
         write_bytes(f / "extras.safetensors", bytes);
       },
       {"extras.safetensors", "'running'", "[4, 1]", "[2, 2]"}},
      {"an index that sends a tensor elsewhere",
       [](const fs::path& f) {
         std::string bytes = read_bytes(f / "model.safetensors.index.json");
         bytes.replace(bytes.find("model-00001"), 11, "model-00002");
         write_bytes(f / "model.safetensors.index.json", bytes);
       },
       {"model.safetensors.index.json", "differs"}},
  };
  for (const Case& c : table) {
    SCOPED_TRACE(c.what);
    const TemporaryFolder folder;
    write_checkpoint(folder / "step", small_state(), 80);
    c.damage(folder / "step");
    const std::string message = message_of<FormatError>([&] { verify(folder / "step"); });
    EXPECT_THAT(message, HasSubstr((folder / "step").string()));
    for (const std::string& word : c.expected) { EXPECT_THAT(message, HasSubstr(word)); }
  }
}

// Weights as other programs write them: a folder, an index or a file.
class WeightFiles : public testing::Test {
 protected:
  WeightFiles() {
    write("model-00001-of-00002.safetensors", {{"a", {2}}, {"b", {3}}});
    write("model-00002-of-00002.safetensors", {{"c", {1}}, {"left out", {1}}});
    index(R"({"metadata": {"total_size": 24}, "weight_map": {
        "a": "model-00001-of-00002.safetensors", "c": "model-00002-of-00002.safetensors",
        "b": "model-00001-of-00002.safetensors"}})");
  }
  void write(const std::string& name, std::vector<SafetensorsWriter::Declared> tensors) {
    SafetensorsWriter writer{folder_ / name, tensors};
    for (const auto& tensor : tensors) {
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.elems()));
      for (float& value : values) { value = next_++; }
      writer.write(tensor.name, values);
    }
    writer.finish();
  }
  void index(const std::string& text) { folder_.write("model.safetensors.index.json", text); }

  TemporaryFolder folder_;
  float next_ = 0;
};

TEST_F(WeightFiles, AFolderAndItsIndexAreReadAsOne) {
  for (const auto& path : {folder_.path(), folder_ / "model.safetensors.index.json"}) {
    SafetensorsReader reader{path};
    EXPECT_EQ(reader.entries().size(), 3U);
    EXPECT_EQ(reader.files().size(), 3U);
    std::vector<float> values(2);
    reader.read("b", 1, values);
    EXPECT_EQ(values, (std::vector<float>{3, 4}));
    values.resize(1);
    reader.read("c", 0, values);
    EXPECT_EQ(values, (std::vector<float>{5}));
  }
}

TEST_F(WeightFiles, AFolderWithoutWeightsOrWithTwoIsRefused) {
  write("model.safetensors", {{"a", {2}}});
  EXPECT_THAT(message_of<FormatError>([&] { SafetensorsReader{folder_.path()}; }),
              HasSubstr("both model.safetensors and model.safetensors.index.json"));
}

TEST_F(WeightFiles, DamagedIndicesAreRefused) {
  const std::string file = R"("model-00001-of-00002.safetensors")";
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "not valid JSON"},
      {"[]", "'weight_map'"},
      {"{}", "'weight_map'"},
      {R"({"weight_map": []})", "'weight_map'"},
      {R"({"weight_map": {"a": 1}})", "tensor 'a'"},
      {R"({"weight_map": {"a": ""}})", "tensor 'a'"},
      {R"({"weight_map": {"a": "../model-00001-of-00002.safetensors"}})", "tensor 'a'"},
      {R"({"weight_map": {"a": "/etc/passwd"}})", "tensor 'a'"},
      {R"({"weight_map": {"a": "."}})", "tensor 'a'"},
      {R"({"weight_map": {"a": "missing.safetensors"}})", "missing.safetensors: cannot open"},
      {R"({"weight_map": {"c": )" + file + "}}", "tensor 'c' is not in file"},
      {R"({"weight_map": {"x": )" + file + "}}", "tensor 'x' is not in file"},
      {R"({"weight_map": {"a": )" + file + R"(, "a": )" + file + "}}", "'a' twice"},
      {std::string(100'000, '['), "not valid JSON"},
  };
  for (const auto& [text, expected] : table) {
    SCOPED_TRACE(text.substr(0, 100));
    index(text);
    EXPECT_THAT(message_of<FormatError>([&] { SafetensorsReader{folder_.path()}; }),
                AllOf(HasSubstr(folder_.path().string()), HasSubstr(expected)));
  }
}

/// The number of this process's descriptors of files in `folder`.
std::size_t open_files_in(const std::filesystem::path& folder) {
  std::size_t open = 0;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone).string();
    open += target.starts_with(folder.string()) ? 1 : 0;
  }
  return open;
}

TEST(SafetensorsReader, KeepsFewFilesOpenHoweverManyThereAre) {
  const TemporaryFolder folder;
  std::string map;
  for (int i = 0; i < 100; ++i) {
    const std::string name = fmt::format("t{}", i);
    SafetensorsWriter writer{folder / name, {{name, {1}}}};
    writer.write(name, std::vector<float>{static_cast<float>(i)});
    writer.finish();
    map += fmt::format(R"({}"{}": "{}")", i == 0 ? "" : ", ", name, name);
  }
  (void)folder.write("i.json", R"({"weight_map": {)" + map + "}}");
  const test::WorkingFolder here{folder.path()};
  SafetensorsReader reader{"i.json"};
  std::filesystem::current_path("/");  // files that are opened again are still those of the folder
  std::vector<float> value(1);
  for (int i = 0; i < 200; ++i) {
    const int file = i * 37 % 100;
    reader.read(fmt::format("t{}", file), 0, value);
    ASSERT_EQ(value[0], static_cast<float>(file));
    ASSERT_LE(open_files_in(folder.path()), 16U);
  }
}

TEST(LoadSource, KeepsFewFilesOpenHoweverManyThereAre) {
  const TemporaryFolder folder;
  std::vector<test::StateTensor> tensors;
  for (int i = 0; i < 100; ++i) {
    tensors.push_back(
        {"model", fmt::format("t{}", i), "weight", "F32", {1}, 256, std::string(4, '1')});
  }
  write_checkpoint(folder.path(), tensors, 1);
  const auto source = checkpoint::open_checkpoint(folder.path(), LoadOptions::What::everything);
  ASSERT_EQ(source->manifest().files.size(), 101U);
  for (const ManifestTensor& tensor : source->manifest().tensors) {
    std::string data(4, '\0');
    source->read(tensor.file, tensor.first_byte, std::as_writable_bytes(std::span{data}));
    EXPECT_EQ(data, "1111");
    ASSERT_LE(open_files_in(folder.path()), 16U);
  }
}

}  // namespace
}  // namespace tessera::reader_test
