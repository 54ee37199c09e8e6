#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/checkpoint/safetensors.hpp"

namespace tessera::safetensors_damage_test {
namespace {

// Damaged files must be read whole or refused with FormatError; anything else ends the test.
class SafetensorsDamage : public testing::Test {
 protected:
  SafetensorsDamage() {
    SafetensorsWriter writer{folder_ / "good", {{"wte.weight", {3, 2}}, {"ln.bias", {5}}}};
    writer.write("wte.weight", std::vector<float>{1, 2, 3, 4, 5, 6});
    writer.write("ln.bias", std::vector<float>(5, -1.0F));
    writer.finish();
    std::ifstream in{folder_ / "good", std::ios::binary};
    good_ = {std::istreambuf_iterator<char>{in}, {}};
  }

  // True if the file was accepted.
  bool read(const std::string& bytes) {
    // Remove it first: some file systems write an overwritten file to disk at once.
    std::filesystem::remove(folder_ / "damaged");
    const auto path = folder_.write("damaged", bytes);
    try {
      SafetensorsReader reader{path};
      for (const auto& [name, entry] : reader.entries()) { read_tensor(reader, name, entry); }
      return true;
    } catch (const FormatError& error) {
      EXPECT_NE(std::string{error.what()}.find(path.string()), std::string::npos) << error.what();
      return false;
    }
  }

  // No tensor may exceed the file: a shape must not make the reader allocate.
  static void read_tensor(SafetensorsReader& reader, const std::string& name,
                          const SafetensorsReader::Entry& entry) {
    ASSERT_LE(entry.bytes, 1000U);
    if (entry.dtype != "F32") { return; }
    std::vector<float> values(static_cast<std::size_t>(entry.shape.elems()));
    reader.read(name, 0, values);
  }

  test::TemporaryFolder folder_;
  std::string good_;
};

TEST_F(SafetensorsDamage, TheUndamagedFileIsRead) {
  EXPECT_TRUE(read(good_));
}

TEST_F(SafetensorsDamage, ATruncatedFileIsRefusedWhereverItEnds) {
  for (std::size_t size = 0; size < good_.size(); ++size) {
    ASSERT_FALSE(read(good_.substr(0, size))) << size << " bytes";
  }
}

TEST_F(SafetensorsDamage, AnExtraByteIsRefused) {
  EXPECT_FALSE(read(good_ + 'x'));
}

TEST_F(SafetensorsDamage, AnyChangedByteIsSurvived) {
  int refused = 0;
  for (std::size_t at = 0; at < good_.size(); ++at) {
    for (const unsigned change : {0x01U, 0x02U, 0x04U, 0x10U, 0x20U, 0x80U, 0xFFU}) {
      std::string bytes = good_;
      bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ change);
      SCOPED_TRACE(testing::Message() << "byte " << at << " changed by " << change);
      refused += read(bytes) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 500);
}

TEST_F(SafetensorsDamage, RandomEditsOfTheHeaderAreSurvived) {
  std::mt19937 random{7};
  const auto draw = [&](std::size_t below) {
    return std::uniform_int_distribution<std::size_t>{0, below - 1}(random);
  };
  const std::string pieces[] = {"{",
                                "}",
                                "[",
                                "]",
                                "\"",
                                ",",
                                ":",
                                "-1",
                                "1e9",
                                "null",
                                "\\u0000",
                                "18446744073709551615",
                                "\"shape\":[]",
                                " ",
                                "0"};
  int refused = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string bytes = good_;
    for (std::size_t edits = 1 + draw(3); edits > 0; --edits) {
      const std::size_t at = 8 + draw(200);
      const std::string& piece = pieces[draw(std::size(pieces))];
      if (draw(2) == 0) {
        bytes.insert(at, piece);
        bytes[0] = static_cast<char>(bytes[0] + static_cast<char>(piece.size()));
      } else {
        bytes.replace(at, piece.size(), piece);
      }
    }
    SCOPED_TRACE(testing::Message() << "trial " << trial);
    refused += read(bytes) ? 0 : 1;
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace tessera::safetensors_damage_test
