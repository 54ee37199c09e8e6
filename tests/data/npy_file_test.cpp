#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/data/token_source.hpp"

namespace tessera::npy_file_test {
namespace {

using namespace std::string_literals;
using test::message_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

std::string little_endian(std::uint64_t value, std::size_t bytes) {
  std::string text;
  for (std::size_t b = 0; b < bytes; ++b) { text.push_back(static_cast<char>(value >> (8 * b))); }
  return text;
}

/// A header with `dictionary`, padded to whole 64 bytes as numpy does.
std::string npy(std::string dictionary, int major = 1) {
  const std::size_t width = major == 1 ? 2 : 4;
  while ((8 + width + dictionary.size() + 1) % 64 != 0) { dictionary += ' '; }
  dictionary += '\n';
  return "\x93NUMPY"s + static_cast<char>(major) + '\0' + little_endian(dictionary.size(), width) +
         dictionary;
}

std::string dictionary(const std::string& type, std::size_t count) {
  return "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + std::to_string(count) +
         ",), }";
}

std::string array(const std::string& type, const std::vector<std::int64_t>& tokens, int major = 1) {
  std::string bytes = npy(dictionary(type, tokens.size()), major);
  for (const std::int64_t token : tokens) {
    bytes += little_endian(static_cast<std::uint64_t>(token),
                           static_cast<std::size_t>(type.back() - '0'));
  }
  return bytes;
}

std::vector<std::int32_t> all_of(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

class NpyFile : public testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<const TokenSource> open(const std::string& bytes) const {
    return open_tokens(folder_.write("t.npy", bytes));
  }
  // What opening a file of `bytes` is refused with, after its path.
  [[nodiscard]] std::string refusal(const std::string& bytes) const {
    const auto path = folder_.write("t.npy", bytes);
    const std::string text = message_of<FormatError>([&] { (void)open_tokens(path); });
    EXPECT_THAT(text, testing::StartsWith(path.string()));
    return text;
  }
  // What reading a token of `bytes` is refused with.
  [[nodiscard]] std::string refused_token(const std::string& bytes) const {
    const auto source = open(bytes);
    const std::string text = message_of<FormatError>([&] { (void)all_of(*source); });
    EXPECT_THAT(text, testing::StartsWith((folder_ / "t.npy").string()));
    return text;
  }

  TemporaryFolder folder_;
};

TEST_F(NpyFile, OfEveryTypeAndVersionIsReadFromAnyPlace) {
  for (const char* type : {"<u2", "<i2", "<u4", "<i4", "<u8", "<i8"}) {
    SCOPED_TRACE(type);
    const std::int64_t most = type[2] == '2' ? (type[1] == 'u' ? 65'535 : 32'767) : INT32_MAX;
    const std::vector<std::int32_t> tokens{0, 1, 255, 256, static_cast<std::int32_t>(most), 7};
    for (const int major : {1, 2, 3}) {
      const auto source = open(array(type, {tokens.begin(), tokens.end()}, major));
      EXPECT_EQ(all_of(*source), tokens);
      std::vector<std::int32_t> two(2);
      source->read(3, two);
      EXPECT_EQ(two, (std::vector<std::int32_t>{256, static_cast<std::int32_t>(most)}));
      source->read(6, {});
      EXPECT_THROW(source->read(5, two), ContractError);
    }
  }
}

// 20,000 tokens are read in several pieces.
TEST_F(NpyFile, LongerThanAPieceIsReadInOrder) {
  for (const char* type : {"<u2", "<i4", "<i8"}) {
    std::vector<std::int64_t> tokens;
    for (int i = 0; i < 20'000; ++i) { tokens.push_back(i); }
    const auto source = open(array(type, tokens));
    EXPECT_THAT(all_of(*source), testing::ElementsAreArray(tokens)) << type;
  }
}

TEST_F(NpyFile, LiesOnTheDiskUntilItIsRead) {
  const auto count = (std::int64_t{1} << 30) + 1;  // beyond 4 GiB of int64
  const std::string header = npy(dictionary("<i8", static_cast<std::size_t>(count)));
  const auto path = folder_.write("t.npy", header);
  const auto size = header.size() + 8 * static_cast<std::size_t>(count);
  std::filesystem::resize_file(path, size);  // sparse: uses no disk
  {
    std::ofstream out{path, std::ios::binary | std::ios::in};
    out.seekp(static_cast<std::streamoff>(size - 8));
    out.put('z');
  }
  const auto source = open_tokens(path);
  ASSERT_EQ(source->size(), count);
  std::vector<std::int32_t> two(2);
  source->read(count - 2, two);
  EXPECT_EQ(two, (std::vector<std::int32_t>{0, 'z'}));
}

TEST_F(NpyFile, MayHaveItsHeaderInAnotherOrderOrSpacing) {
  const std::string tokens = little_endian(5, 2) + little_endian(9, 2);
  for (const char* text : {"{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<u2\"}",
                           "{ 'fortran_order' : False , 'shape' : ( 2 , ) , 'descr' : '<u2' , }"}) {
    EXPECT_EQ(all_of(*open(npy(text) + tokens)), (std::vector<std::int32_t>{5, 9})) << text;
  }
}

TEST_F(NpyFile, HoldsTokensFromZeroToThirtyOneBitsOnly) {
  EXPECT_THAT(refused_token(array("<i2", {3, -100})),
              HasSubstr("byte 130: token -100 at position 1 is below 0"));
  EXPECT_THAT(refused_token(array("<i4", {3, 4, INT32_MIN})),
              HasSubstr("token -2147483648 at position 2"));
  EXPECT_THAT(refused_token(array("<i8", {-1})), HasSubstr("token -1 at position 0 is below 0"));
  EXPECT_THAT(refused_token(array("<i8", {INT64_MIN})), HasSubstr("token -9223372036854775808"));
  // The low halves of these would be tokens.
  EXPECT_THAT(refused_token(array("<i8", {1, (std::int64_t{1} << 32) + 7})),
              HasSubstr("byte 136: token 4294967303 at position 1 is beyond 2^31 - 1"));
  EXPECT_THAT(refused_token(array("<u8", {-1})), HasSubstr("token 18446744073709551615"));
  EXPECT_THAT(refused_token(array("<u4", {std::int64_t{1} << 31})), HasSubstr("token 2147483648"));
}

TEST_F(NpyFile, OfAnotherTypeOrShapeIsRefusedWithWhatToWrite) {
  const auto of_type = [&](const std::string& type) {
    const std::string text = refusal(npy(dictionary(type, 1)) + "12345678");
    EXPECT_THAT(text, AllOf(HasSubstr("byte 10: the array's type is " + type.substr(0, 40)),
                            HasSubstr("numpy.save(path, array.reshape(-1).astype('uint32'))")));
    return text;
  };
  for (const char* type : {"<f4", "<f2", "|u1", "|i1", "|b1", "<c8", "<U4", "|S2", "<M8[ns]", "",
                           "=i4", "<i", "<i44"}) {
    EXPECT_THAT(of_type(type), HasSubstr("not integers of 2, 4 or 8 bytes")) << type;
  }
  EXPECT_THAT(of_type(">i4"), HasSubstr("big-endian"));
  EXPECT_THAT(of_type(">u2"), HasSubstr("big-endian"));
  EXPECT_THAT(of_type("|O"), HasSubstr("Python objects"));
  EXPECT_LT(of_type(std::string(3'000, 'x')).size(), 400U);
  EXPECT_THAT(refusal(npy("{'descr': [('a', '<i4')], 'fortran_order': False, 'shape': (1,), }")),
              HasSubstr("a structure"));
  const auto of_shape = [&](const std::string& shape, const std::string& order = "False") {
    return refusal(npy("{'descr': '<u2', 'fortran_order': " + order + ", 'shape': " + shape + "}") +
                   "123456789012");
  };
  EXPECT_THAT(of_shape("(2, 3)"), AllOf(HasSubstr("2 dimensions"), HasSubstr("reshape(-1)")));
  EXPECT_THAT(of_shape("(6, 1)"), HasSubstr("2 dimensions"));
  EXPECT_THAT(of_shape("()"), HasSubstr("0 dimensions"));
  EXPECT_THAT(of_shape("(6,)", "True"), HasSubstr("Fortran"));
}

TEST_F(NpyFile, ThatIsCutOrHasAnotherSizeIsRefusedWithBothNumbers) {
  const std::string whole = array("<u4", {1, 2, 3});
  for (std::size_t bytes = 6; bytes < 128; ++bytes) {
    EXPECT_THAT(refusal(whole.substr(0, bytes)),
                AllOf(HasSubstr("ends at byte " + std::to_string(bytes)), HasSubstr("header")));
  }
  EXPECT_THAT(refusal(whole.substr(0, 136)), HasSubstr("says 3 tokens, but the file has 2"));
  EXPECT_THAT(refusal(whole + "1234"), HasSubstr("says 3 tokens, but the file has 4"));
  EXPECT_THAT(refusal(whole + "1"), HasSubstr("a part of a token at byte 140"));
  EXPECT_THAT(refusal(npy(dictionary("<u2", std::size_t{1} << 62)) + "12"),
              HasSubstr("says 4611686018427387904 tokens, but the file has 1"));
  const auto path = folder_.write("empty.npy", npy(dictionary("<u2", 0)));
  EXPECT_THAT(message_of<ConfigError>([&] { (void)open_tokens(path); }), HasSubstr("is empty"));
}

TEST_F(NpyFile, WithADamagedHeaderIsRefused) {
  EXPECT_THAT(refusal("\x93NUMPY\x04\0v\0{"s), HasSubstr("byte 6: version 4.0 of .npy is unknown"));
  EXPECT_THAT(refusal("\x93NUMPY\0\0v\0{"s), HasSubstr("version 0.0"));
  EXPECT_THAT(refusal("\x93NUMPY\x01\x01v\0{"s), HasSubstr("version 1.1"));
  EXPECT_THAT(refusal("\x93NUMPY\x02\0\xFF\xFF\xFF\xFF{"s),
              HasSubstr("byte 8: the header has 4294967295 bytes, more than the 10000"));
  for (const char* text : {
           "",
           "{}",
           "{",
           "[1]",
           "{'descr': '<u2', 'fortran_order': False}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (1,)",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (1,)} x",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (1,), 'more': 1}",
           "{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<u2' 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<u2, 'fortran_order': False, 'shape': (1,)}",
           "{'descr': \"<u2', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '\x1B[31m', 'fortran_order': False, 'shape': (1,)}",
           "{'descr': 7, 'fortran_order': False, 'shape': (1,)}",
           "{'descr': '<u2', 'fortran_order': 0, 'shape': (1,)}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': 1}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (1 2)}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (-1,)}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (,)}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (99999999999999999999,)}",
           "{'descr': '<u2', 'fortran_order': False, 'shape': (1.5,)}",
           "{'descr': __import__('os'), 'fortran_order': False, 'shape': (1,)}",
       }) {
    EXPECT_THAT(refusal(npy(text) + "12"), HasSubstr("byte 10: the header does not give descr"))
        << text;
  }
}

TEST_F(NpyFile, IsReadAsItsBytesWhereATypeIsNamed) {
  const auto path = folder_.write("t.npy", array("<u2", {7}));
  EXPECT_EQ(open_tokens(path, TokenFormat::uint16)->size(), 65);
  EXPECT_EQ(container_of_data(path), "a NumPy array (.npy)");
}

TEST_F(NpyFile, OfAVocabularyOf128KHasTokensAboveSixteenBits) {
  const auto source = open(array("<u4", {131'071, 65'536, 0}));
  EXPECT_NO_THROW(check_tokens(*source, 131'072));
  EXPECT_THAT(message_of<ConfigError>([&] { check_tokens(*source, 131'071); }),
              AllOf(HasSubstr("token 131071 at position 0"), HasSubstr("0 to 131070")));
}

}  // namespace
}  // namespace tessera::npy_file_test
