#include "tessera/data/token_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/temporary_folder.hpp"
#include "support/working_folder.hpp"
#include "tessera/base/error.hpp"

namespace tessera::token_source_test {
namespace {

using test::message_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::int32_t> all_of(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

std::string text_of(const TokenSource& source) {
  std::string text;
  for (const std::int32_t token : all_of(source)) { text.push_back(static_cast<char>(token)); }
  return text;
}

std::string as_uint16(const std::vector<std::uint16_t>& tokens) {
  std::string bytes;
  for (const std::uint16_t token : tokens) {
    bytes.push_back(static_cast<char>(token & 0xFFU));
    bytes.push_back(static_cast<char>(token >> 8U));
  }
  return bytes;
}

std::string llmc_header(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
  std::string bytes(1024, '\0');
  std::size_t at = 0;
  for (const std::uint32_t value : {magic, version, count}) {
    for (unsigned b = 0; b < 4; ++b) {
      bytes[at++] = static_cast<char>((value >> (8 * b)) & 0xFFU);
    }
  }
  return bytes;
}

TEST(ByteSource, EachByteOfAFileIsAToken) {
  const TemporaryFolder folder;
  const auto source = open_bytes(folder.write("f.txt", std::string{"a\0\xFF\n", 4}));
  EXPECT_EQ(all_of(*source), (std::vector<std::int32_t>{97, 0, 255, 10}));
}

TEST(ByteSource, TextFilesOfAFolderFollowEachOtherInByteOrderOfTheirNames) {
  const TemporaryFolder folder;
  folder.write("b", "2");
  folder.write("B.txt", "1");
  folder.write("a10", "b");
  folder.write("a9", "c");
  folder.write("\xC3\xA4", "3");  // not ASCII: sorts last
  EXPECT_EQ(text_of(*open_bytes(folder.path())), "1bc23");
}

TEST(ByteSource, SkipsFilesThatAreNotText) {
  const TemporaryFolder folder;
  folder.write("text", "yes");
  folder.write("text.dat", "index");
  folder.write("empty", "");
  folder.write(".hidden", "no");
  folder.write("sub/inside", "no");
  std::filesystem::create_symlink("text", folder / "text.u8");
  std::filesystem::create_symlink("nowhere", folder / "dangling");
  std::filesystem::create_symlink("text", folder / "zlink");
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(text_of(*open_bytes(folder.path())), "yesyes");
  EXPECT_THAT(skipped_by_open_bytes(folder.path()),
              testing::ElementsAre("dangling", "empty", "pipe", "sub", "text.dat", "text.u8"));
  EXPECT_THAT(skipped_by_open_bytes(folder / "text"), testing::IsEmpty());
}

TEST(ByteSource, AnyRangeAcrossFilesIsReadAsOne) {
  const TemporaryFolder folder;
  folder.write("1", "abc");
  folder.write("2", "d");
  folder.write("3", "efgh");
  const auto source = open_bytes(folder.path());
  const std::string whole = "abcdefgh";
  ASSERT_EQ(source->size(), 8);
  for (std::int64_t first = 0; first <= 8; ++first) {
    for (std::int64_t count = 0; count <= 8 - first; ++count) {
      std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
      source->read(first, tokens);
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        ASSERT_EQ(tokens[i], whole[static_cast<std::size_t>(first) + i]) << first << "+" << count;
      }
    }
  }
}

TEST(ByteSource, ReadsFoldersOfMoreFilesThanItKeepsOpen) {
  const TemporaryFolder folder;
  std::string whole;
  for (int i = 100; i < 400; ++i) {
    folder.write(std::to_string(i), std::to_string(i));
    whole += std::to_string(i);
  }
  EXPECT_EQ(text_of(*open_bytes(folder.path())), whole);
}

TEST(ByteSource, ReadsFromManyThreads) {
  const TemporaryFolder folder;
  std::string whole;
  for (int i = 0; i < 20'000; ++i) { whole.push_back(static_cast<char>(i % 251)); }
  folder.write("1", whole.substr(0, 7'000));
  folder.write("2", whole.substr(7'000));
  const auto source = open_bytes(folder.path());
  std::vector<std::thread> readers;
  for (int r = 0; r < 4; ++r) {
    readers.emplace_back([&, r] {
      std::vector<std::int32_t> tokens(1000);
      for (auto first = std::int64_t{r} * 100; first + 1000 <= source->size(); first += 500) {
        source->read(first, tokens);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          ASSERT_EQ(tokens[i], (first + static_cast<std::int64_t>(i)) % 251);
        }
      }
    });
  }
  for (std::thread& reader : readers) { reader.join(); }
}

// A folder with more files than are kept open: the others are opened again at each read.
TEST(ByteSource, ReadsARelativeFolderAfterTheWorkingFolderHasChanged) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "data");
  std::string whole;
  for (int i = 0; i < 200; ++i) {
    const std::string text(1, static_cast<char>('A' + i % 26));
    folder.write("data/" + std::to_string(1000 + i), text);
    whole += text;
  }
  const test::WorkingFolder here{folder.path()};
  const auto source = open_bytes("data");
  std::filesystem::current_path("/");
  std::vector<std::int32_t> tokens(200);
  source->read(0, tokens);
  EXPECT_TRUE(std::ranges::equal(tokens, whole));
}

TEST(ByteSource, ReadsBeyondFourGigabytes) {
  const TemporaryFolder folder;
  const auto path = folder.write("sparse", "");
  const std::int64_t size = (std::int64_t{1} << 32) + 3;
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(size));  // sparse: uses no disk
  {
    std::ofstream out{path, std::ios::binary | std::ios::in};
    out.seekp(size - 1);
    out.put('z');
  }
  const auto source = open_bytes(path);
  ASSERT_EQ(source->size(), size);
  std::vector<std::int32_t> tokens(2);
  source->read(size - 2, tokens);
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{0, 'z'}));
}

TEST(ByteSource, RefusesAnEmptySourceAndSaysWhere) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<ConfigError>([&] { (void)open_bytes(path); });
  };
  EXPECT_THAT(refusal(folder / "missing"),
              AllOf(HasSubstr((folder / "missing").string()), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder.write("empty", "")),
              AllOf(HasSubstr((folder / "empty").string()), HasSubstr("is empty")));
  EXPECT_THAT(refusal(folder.path()),
              AllOf(HasSubstr(folder.path().string()), HasSubstr("no text files")));
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(folder / "pipe"), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal({}), HasSubstr("cannot open ''"));
}

TEST(ByteSource, RefusesAFileItMayNotRead) {
  if (::geteuid() == 0) { GTEST_SKIP() << "the superuser may read everything"; }
  const TemporaryFolder folder;
  const auto path = folder.write("secret", "x");
  ASSERT_EQ(::chmod(path.c_str(), 0), 0);
  EXPECT_THAT(message_of<ConfigError>([&] { (void)open_bytes(path); }),
              HasSubstr("Permission denied"));
}

TEST(ByteSource, DataThatShrinksIsAnErrorThatSaysWhere) {
  const TemporaryFolder folder;
  const auto path = folder.write("f", "0123456789");
  const auto source = open_bytes(path);
  std::filesystem::resize_file(path, 4);
  std::vector<std::int32_t> tokens(10);
  EXPECT_THAT(message_of<FormatError>([&] { source->read(0, tokens); }),
              AllOf(HasSubstr(path.string()), HasSubstr("ends at byte 4")));
}

TEST(ByteSource, ReadingOutsideIsRefused) {
  const TemporaryFolder folder;
  const auto source = open_bytes(folder.write("f", "0123456789"));
  std::vector<std::int32_t> tokens(3);
  EXPECT_NO_THROW(source->read(7, tokens));
  EXPECT_THROW(source->read(8, tokens), ContractError);
  EXPECT_THROW(source->read(-1, tokens), ContractError);
  EXPECT_THROW(source->read(INT64_MAX, tokens), ContractError);
}

TEST(TokenFile, ReadsPlainUint16) {
  const TemporaryFolder folder;
  const auto source =
      open_tokens(folder.write("t.bin", as_uint16({0, 1, 255, 256, 50256, 65535, 7})));
  EXPECT_EQ(all_of(*source), (std::vector<std::int32_t>{0, 1, 255, 256, 50256, 65535, 7}));
  std::vector<std::int32_t> two(2);
  source->read(3, two);
  EXPECT_EQ(two, (std::vector<std::int32_t>{256, 50256}));
  EXPECT_THROW(source->read(6, two), ContractError);
}

TEST(TokenFile, PassesOverTheHeader) {
  const TemporaryFolder folder;
  const auto source =
      open_tokens(folder.write("t.bin", llmc_header(20240520, 1, 3) + as_uint16({9, 50256, 8})));
  EXPECT_EQ(all_of(*source), (std::vector<std::int32_t>{9, 50256, 8}));
}

TEST(TokenFile, TooSmallForAMagicNumberIsPlain) {
  const TemporaryFolder folder;
  EXPECT_EQ(all_of(*open_tokens(folder.write("t.bin", as_uint16({5})))),
            std::vector<std::int32_t>{5});
}

TEST(TokenFile, RefusesSizesThatDoNotFitAndSaysWhere) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& bytes) {
    const auto path = folder.write("t.bin", bytes);
    const std::string text = message_of<FormatError>([&] { (void)open_tokens(path); });
    EXPECT_THAT(text, HasSubstr(path.string()));
    return text;
  };
  const std::string tokens = as_uint16({1, 2, 3});
  EXPECT_THAT(refusal("abc"), HasSubstr("a part of a token at byte 2"));
  EXPECT_THAT(refusal(llmc_header(20240520, 1, 4) + tokens),
              HasSubstr("byte 8: the header says 4"));
  EXPECT_THAT(refusal(llmc_header(20240520, 1, 2) + tokens), HasSubstr("the file has 3"));
  EXPECT_THAT(refusal(llmc_header(20240520, 1, 0xFFFFFFFF) + tokens), HasSubstr("says -1"));
  EXPECT_THAT(refusal(llmc_header(20240520, 7, 3) + tokens),
              HasSubstr("byte 4: the header has version 7"));
  EXPECT_THAT(refusal(llmc_header(20240520, 1, 3) + tokens + "x"), HasSubstr("at byte 1030"));
  EXPECT_THAT(refusal(llmc_header(20240520, 1, 3).substr(0, 600)), HasSubstr("ends at byte 600"));
}

std::string as_uint32(const std::vector<std::uint32_t>& tokens) {
  std::string bytes;
  for (const std::uint32_t token : tokens) {
    for (unsigned b = 0; b < 4; ++b) { bytes.push_back(static_cast<char>(token >> (8 * b))); }
  }
  return bytes;
}

TEST(TokenFile, ReadsUint32AfterLlmcsHeaderOfVersion7) {
  const TemporaryFolder folder;
  const std::vector<std::uint32_t> tokens{128'000, 9, 70'000, 65'535};
  const auto source =
      open_tokens(folder.write("t.bin", llmc_header(20240801, 7, 4) + as_uint32(tokens)));
  EXPECT_EQ(all_of(*source), (std::vector<std::int32_t>{128'000, 9, 70'000, 65'535}));
  std::vector<std::int32_t> two(2);
  source->read(2, two);
  EXPECT_EQ(two, (std::vector<std::int32_t>{70'000, 65'535}));
}

TEST(TokenFile, HasTheTypeThatIsAskedForWhateverItLooksLike) {
  const TemporaryFolder folder;
  const auto path = folder.write("t.bin", "PK\x03\x04");
  EXPECT_EQ(all_of(*open_tokens(path, TokenFormat::uint16)),
            (std::vector<std::int32_t>{0x4B50, 0x0403}));
  EXPECT_EQ(all_of(*open_tokens(path, TokenFormat::uint32)),
            (std::vector<std::int32_t>{0x04034B50}));
  EXPECT_THAT(message_of<FormatError>([&] {
                (void)open_tokens(folder.write("odd", as_uint16({1, 2, 3})), TokenFormat::uint32);
              }),
              HasSubstr("a part of a token at byte 4: the tokens have 4 bytes each"));
  const auto large =
      open_tokens(folder.write("large", as_uint32({5, 0x80000000})), TokenFormat::uint32);
  EXPECT_THAT(message_of<FormatError>([&] { (void)all_of(*large); }),
              HasSubstr("byte 4: token 2147483648 at position 1 is beyond"));
}

// A run on the header or on half tokens would train on noise without a word.
TEST(TokenFile, ThatShowsAContainerTextOrWiderIntegersIsRefusedByName) {
  using namespace std::string_literals;
  const std::string rest(100, '\x81');
  const std::vector<std::uint32_t> ids(40, 77);
  std::string wide;
  for (int i = 0; i < 40; ++i) { wide += as_uint32({77, 0}); }
  const std::vector<std::pair<std::string, const char*>> starts{
      {"PK\x03\x04\x14\0"s, "a zip file"},
      {"\x1F\x8B\x08\0"s, "a gzip file"},
      {"\x28\xB5\x2F\xFD"s, "a zstd file"},
      {"BZh91AY&"s, "a bzip2 file"},
      {"\xFD"
       "7zXZ\0"s,
       "an xz file"},
      {"PAR1\x15\0"s, "a Parquet file"},
      {"ARROW1\0\0"s, "an Arrow file"},
      {"\x89HDF\r\n\x1A\n"s, "an HDF5 file"},
      {"\x80\x04\x95\x10"s, "a Python pickle"},
      {"\x10\0\0\0\0\0\0\0{\"wte\":{}}    "s, "a safetensors file"},
  };
  const TemporaryFolder folder;
  const auto refusal = [&](std::string bytes) {
    bytes += bytes.size() % 2 == 1 ? "\x81" : "";
    const auto path = folder.write("t.bin", bytes);
    const std::string text = message_of<ConfigError>([&] { (void)open_tokens(path); });
    EXPECT_THAT(text, AllOf(HasSubstr(path.string()), HasSubstr("`token_format`")));
    return text;
  };
  for (const auto& [start, name] : starts) {
    EXPECT_THAT(refusal(start + rest), HasSubstr(name));
    EXPECT_THAT(container_of_data(folder.write("data", start + rest)), HasSubstr(name));
  }
  EXPECT_THAT(refusal("To be, or not to be, \xC3\xA4 that is the question:\n"), HasSubstr("text"));
  EXPECT_THAT(refusal(as_uint32(ids)), HasSubstr("integers of 4 bytes"));
  EXPECT_THAT(refusal(wide), HasSubstr("integers of 8 bytes"));
  EXPECT_EQ(container_of_data(folder.write("data", "To be, or not to be, that is the question:")),
            "");
  EXPECT_EQ(container_of_data(folder.path()), "");
}

// Ids of a vocabulary of 128 K have upper halves of 0 and 1, those of 256 K up to 3.
TEST(TokenFile, OfIdsAboveSixteenBitsWithoutAHeaderIsRefused) {
  const TemporaryFolder folder;
  for (const std::uint32_t vocab : {131'072U, 262'144U}) {
    std::vector<std::uint32_t> ids;
    std::string wide;
    for (std::uint32_t i = 0; i < 200; ++i) {
      ids.push_back(i * 7919 % vocab);
      wide += as_uint32({ids.back(), 0});
    }
    const auto path = folder.write("t.bin", as_uint32(ids));
    EXPECT_THAT(message_of<ConfigError>([&] { (void)open_tokens(path); }),
                AllOf(HasSubstr("integers of 4 bytes"), HasSubstr("`token_format`")));
    EXPECT_NO_THROW(check_tokens(*open_tokens(path, TokenFormat::uint32), vocab));
    const auto wide_path = folder.write("wide.bin", wide);
    EXPECT_THAT(message_of<ConfigError>([&] { (void)open_tokens(wide_path); }),
                HasSubstr("integers of 8 bytes"));
  }
}

TEST(TokenFile, OfTokensIsReadWhateverItsFirstTokensAre) {
  const TemporaryFolder folder;
  std::vector<std::uint16_t> zeros(100, 0);
  std::vector<std::uint16_t> small;
  for (int i = 0; i < 100; ++i) { small.push_back(static_cast<std::uint16_t>(i % 3)); }
  std::vector<std::uint16_t> rarely_large(200, 1);  // one odd token is above 3
  rarely_large[100] = 5'000;
  rarely_large[101] = 5;
  for (const auto& tokens : {zeros, small, rarely_large, std::vector<std::uint16_t>{8224}}) {
    EXPECT_EQ(open_tokens(folder.write("t.bin", as_uint16(tokens)))->size(), std::ssize(tokens));
  }
}

TEST(TokenFile, RefusesWhatHoldsNothing) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<ConfigError>([&] { (void)open_tokens(path); });
  };
  EXPECT_THAT(refusal(folder / "missing"), HasSubstr("No such file"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal(folder.write("empty", "")), HasSubstr("is empty"));
  EXPECT_THAT(refusal(folder.write("header", llmc_header(20240520, 1, 0))), HasSubstr("is empty"));
}

TEST(CheckTokens, AcceptsAVocabularyThatHoldsThemAll) {
  const TemporaryFolder folder;
  const auto source = open_tokens(folder.write("t.bin", as_uint16({0, 99, 50})));
  EXPECT_NO_THROW(check_tokens(*source, 100));
}

TEST(CheckTokens, NamesTheFirstTokenOutsideAndItsPlace) {
  const TemporaryFolder folder;
  const auto source = open_tokens(folder.write("t.bin", as_uint16({0, 99, 100, 500})));
  EXPECT_THAT(
      message_of<ConfigError>([&] { check_tokens(*source, 100); }),
      AllOf(HasSubstr("t.bin"), HasSubstr("token 100 at position 2"), HasSubstr("0 to 99")));
  EXPECT_THROW(check_tokens(*source, 0), ContractError);
}

// The check reads in chunks, and must report the right position beyond the first chunk.
TEST(CheckTokens, FindsATokenFarIn) {
  const TemporaryFolder folder;
  std::string text(200'000, 'a');
  text.back() = '\xFE';
  const auto source = open_bytes(folder.write("f", text));
  EXPECT_THAT(message_of<ConfigError>([&] { check_tokens(*source, 128); }),
              HasSubstr("token 254 at position 199999"));
}

}  // namespace
}  // namespace tessera::token_source_test
