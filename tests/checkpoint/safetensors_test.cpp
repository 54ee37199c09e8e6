#include "tessera/checkpoint/safetensors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "support/small_files.hpp"
#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/half.hpp"

namespace tessera::safetensors_test {
namespace {

using test::message_of;
using test::SmallFiles;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using Floats = std::vector<float>;

Floats count_from(float first, std::size_t count) {
  Floats values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

std::ptrdiff_t entries_of(const TemporaryFolder& folder) {
  return std::distance(std::filesystem::directory_iterator{folder.path()}, {});
}

// A file assembled by hand: the length of `header`, `header`, `data`.
std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

Floats read_all(SafetensorsReader& reader, const std::string& name) {
  Floats values(static_cast<std::size_t>(reader.entries().at(name).shape.elems()));
  reader.read(name, 0, values);
  return values;
}

void write_two(const std::filesystem::path& path) {
  SafetensorsWriter writer{path, {{"b", {2, 3}}, {"a", {4}}}};
  writer.write("b", count_from(1, 6));
  writer.write("a", count_from(-2, 4));
  writer.finish();
}

TEST(Safetensors, WhatIsWrittenIsRead) {
  const TemporaryFolder folder;
  write_two(folder / "w");
  SafetensorsReader reader{folder / "w"};
  ASSERT_EQ(reader.entries().size(), 2U);
  EXPECT_EQ(reader.entries().at("b").dtype, "F32");
  EXPECT_EQ(reader.entries().at("b").shape, (Shape{2, 3}));
  EXPECT_EQ(read_all(reader, "b"), count_from(1, 6));
  EXPECT_EQ(read_all(reader, "a"), count_from(-2, 4));
}

TEST(Safetensors, EveryBitSurvives) {
  const TemporaryFolder folder;
  using Limits = std::numeric_limits<float>;
  const Floats values{0.0F,
                      -0.0F,
                      Limits::denorm_min(),
                      Limits::max(),
                      Limits::min(),
                      Limits::lowest(),
                      Limits::infinity(),
                      -Limits::infinity(),
                      0x1.234568p-3F,
                      Limits::quiet_NaN()};
  SafetensorsWriter writer{folder / "w", {{"x", {10}}}};
  writer.write("x", values);
  writer.finish();
  SafetensorsReader reader{folder / "w"};
  const Floats back = read_all(reader, "x");
  EXPECT_EQ(std::memcmp(back.data(), values.data(), sizeof(float) * values.size()), 0);
}

// Checks each byte: length, JSON, blanks to a multiple of 8, raw little-endian data.
TEST(Safetensors, TheFileIsAsTheFormatSays) {
  const TemporaryFolder folder;
  SafetensorsWriter writer{folder / "w", {{"x", {2}}, {"e", {0, 3}}, {"s", {}}}};
  writer.write("x", Floats{1.0F, -2.0F});
  writer.write("e", Floats{});
  writer.write("s", Floats{0.5F});
  writer.finish();
  std::string header = R"({"__metadata__":{"format":"pt"},)"
                       R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                       R"("e":{"dtype":"F32","shape":[0,3],"data_offsets":[8,8]},)"
                       R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data{"\0\0\x80\x3F\0\0\0\xC0\0\0\0\x3F", 12};
  EXPECT_EQ(bytes_of(folder / "w"), file_of(header, data));
}

TEST(Safetensors, AnyRangeIsRead) {
  const TemporaryFolder folder;
  write_two(folder / "w");
  SafetensorsReader reader{folder / "w"};
  for (std::int64_t first = 0; first <= 6; ++first) {
    for (std::int64_t count = 0; count <= 6 - first; ++count) {
      Floats part(static_cast<std::size_t>(count));
      reader.read("b", first, part);
      EXPECT_EQ(part, count_from(static_cast<float>(first) + 1, part.size()));
    }
  }
  Floats part(3);
  EXPECT_THROW(reader.read("b", 4, part), ContractError);
  EXPECT_THROW(reader.read("b", -1, part), ContractError);
  EXPECT_EQ(read_all(reader, "a"), count_from(-2, 4)) << "usable after a refusal";
}

TEST(Safetensors, SixteenBitTensorsAreWidened) {
  const TemporaryFolder folder;
  const Floats values{1.5F, -0.25F, 65504.0F, 0.0F, std::numeric_limits<float>::infinity()};
  std::string data;
  const auto append = [&](std::uint16_t bits) {
    data.push_back(static_cast<char>(bits & 0xFFU));
    data.push_back(static_cast<char>(bits >> 8U));
  };
  for (const float value : values) { append(bfloat16::from_float(value).bits); }
  for (const float value : values) { append(float16::from_float(value).bits); }
  SafetensorsReader reader{
      folder.write("w", file_of(R"({"b":{"dtype":"BF16","shape":[5],"data_offsets":[0,10]},)"
                                R"("h":{"dtype":"F16","shape":[5],"data_offsets":[10,20]}})",
                                data))};
  Floats rounded = values;
  rounded[2] = 65536.0F;  // bf16 keeps 8 bits
  EXPECT_EQ(read_all(reader, "b"), rounded);
  EXPECT_EQ(read_all(reader, "h"), values);
  Floats middle(2);
  reader.read("h", 1, middle);
  EXPECT_EQ(middle, (Floats{-0.25F, 65504.0F}));
}

TEST(Safetensors, OtherDtypesAreListedButNotRead) {
  const TemporaryFolder folder;
  SafetensorsReader reader{
      folder.write("w", file_of(R"({"i":{"dtype":"I64","shape":[1],"data_offsets":[0,8]},)"
                                R"("new":{"dtype":"F4","shape":[3],"data_offsets":[8,10]}})",
                                "0123456789"))};
  EXPECT_EQ(reader.entries().size(), 2U);
  Floats one(1);
  EXPECT_THAT(message_of<FormatError>([&] { reader.read("i", 0, one); }), HasSubstr("dtype I64"));
  EXPECT_THAT(message_of<FormatError>([&] { reader.read("new", 0, one); }), HasSubstr("dtype F4"));
  EXPECT_THAT(message_of<FormatError>([&] { reader.read("x", 0, one); }),
              AllOf(HasSubstr((folder / "w").string()), HasSubstr("no tensor 'x'")));
}

TEST(Safetensors, AFileMayHaveNoTensors) {
  const TemporaryFolder folder;
  SafetensorsWriter{folder / "w", {}}.finish();
  EXPECT_TRUE(SafetensorsReader{folder / "w"}.entries().empty());
  EXPECT_TRUE(SafetensorsReader{folder.write("v", file_of("{}", ""))}.entries().empty());
}

TEST(Safetensors, NamesNeedNotBeAscii) {
  const TemporaryFolder folder;
  SafetensorsWriter writer{folder / "w", {{"\xC3\xA4 \"quoted\"\n", {1}}}};
  writer.write("\xC3\xA4 \"quoted\"\n", Floats{3.0F});
  writer.finish();
  SafetensorsReader reader{folder / "w"};
  EXPECT_EQ(read_all(reader, "\xC3\xA4 \"quoted\"\n"), Floats{3.0F});
}

TEST(Safetensors, ReadsBeyondFourGigabytes) {
  const TemporaryFolder folder;
  const std::uint64_t elems = (std::uint64_t{1} << 30) + 5;
  const std::string header = R"({"x":{"dtype":"F32","shape":[)" + std::to_string(elems) +
                             R"(],"data_offsets":[0,)" + std::to_string(4 * elems) + "]}}";
  const auto path = folder.write("w", file_of(header, ""));
  std::filesystem::resize_file(path, 8 + header.size() + 4 * elems);  // a sparse file
  {
    std::ofstream out{path, std::ios::binary | std::ios::in};
    const float last = 42.0F;
    out.seekp(-4, std::ios::end);
    out.write(reinterpret_cast<const char*>(&last), 4);
  }
  SafetensorsReader reader{path};
  Floats tail(2);
  reader.read("x", static_cast<std::int64_t>(elems) - 2, tail);
  EXPECT_EQ(tail, (Floats{0.0F, 42.0F}));
}

TEST(SafetensorsReader, RefusesMissingPathsAndFolders) {
  const TemporaryFolder folder;
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<FormatError>([&] { SafetensorsReader{path}; });
  };
  EXPECT_THAT(refusal(folder / "missing"),
              AllOf(HasSubstr((folder / "missing").string()), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("the folder holds neither"));
  EXPECT_THAT(refusal("/dev/null"), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal(folder.write("empty", "")), HasSubstr("ends at byte 0"));
  EXPECT_THAT(refusal(folder.write("short", "1234567")), HasSubstr("ends at byte 7"));
  EXPECT_THAT(refusal(folder.write("text", "Not what was hoped for.")), HasSubstr("byte 0"));
}

TEST(SafetensorsReader, RefusesHeadersThatDoNotMatchTheFile) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& header, const std::string& data = "") {
    const auto path = folder.write("w", file_of(header, data));
    return message_of<FormatError>([&] { SafetensorsReader{path}; });
  };
  const auto tensor = [&](const std::string& fields, const std::string& data) {
    return refusal("{\"x\":{" + fields + "}}", data);
  };
  EXPECT_THAT(refusal(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"x\":"), HasSubstr("byte "));
  EXPECT_THAT(refusal("{} trailing"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"\xFF\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{\"x\":1e999}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(refusal("{\"x\":1}"), HasSubstr("tensor 'x'"));
  EXPECT_THAT(refusal(std::string(100'000, '[')), HasSubstr("not valid JSON"));

  EXPECT_THAT(tensor(R"("shape":[1],"data_offsets":[0,4])", "1234"), HasSubstr("dtype"));
  EXPECT_THAT(tensor(R"("dtype":7,"shape":[1],"data_offsets":[0,4])", "1234"), HasSubstr("dtype"));
  EXPECT_THAT(tensor(R"("dtype":"F32","data_offsets":[0,4])", "1234"), HasSubstr("shape"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])", "1234"),
              HasSubstr("shape"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", "1234"),
              HasSubstr("shape"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])", "1234"),
              HasSubstr("shape"));
  EXPECT_THAT(
      tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])", "1234"),
      HasSubstr("shape"));
  EXPECT_THAT(
      tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", "1234"),
      HasSubstr("2^63"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1])", "1234"), HasSubstr("data_offsets"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])", "1234"),
              HasSubstr("data_offsets"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", "1234"),
              HasSubstr("ascending"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[-4,0])", "1234"),
              HasSubstr("data_offsets"));

  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", "1234"),
              HasSubstr("ends at byte 8 of the data, but the file holds 4"));
  EXPECT_THAT(
      tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551612])", "1234"),
      HasSubstr("the file holds 4"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", "1234"),
              HasSubstr("has 4 bytes, but 2 elements of F32"));
  // 2^62 elements of 4 bytes are 2^64 bytes: 0 if the product overflows.
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])", ""),
              HasSubstr("has 0 bytes"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", "12345678"),
              HasSubstr("the tensors end here"));
  EXPECT_THAT(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", "12345678"),
              HasSubstr("gap"));
}

TEST(SafetensorsReader, RefusesOverlapsAndRepeatedNames) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& first, const std::string& second) {
    const auto path = folder.write("w", file_of("{" + first + "," + second + "}", "12345678"));
    return message_of<FormatError>([&] { SafetensorsReader{path}; });
  };
  const std::string whole = R"("x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_THAT(refusal(whole, R"("y":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})"),
              AllOf(HasSubstr("'y'"), HasSubstr("overlap")));
  EXPECT_THAT(refusal(whole, R"("y":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})"),
              HasSubstr("overlap"));
  EXPECT_THAT(refusal(whole, whole), HasSubstr("has 'x' twice"));
}

TEST(SafetensorsReader, AHeadersLengthAllocatesNoMemory) {
  const TemporaryFolder folder;
  for (const std::uint64_t length : {std::uint64_t{3}, std::uint64_t{1} << 40, UINT64_MAX}) {
    std::string bytes = file_of("{}", "");
    std::memcpy(bytes.data(), &length, 8);
    const auto path = folder.write("w", bytes);
    EXPECT_THAT(message_of<FormatError>([&] { SafetensorsReader{path}; }),
                HasSubstr(std::to_string(length)));
  }
}

TEST(SafetensorsReader, AHeaderMayBeAsLongAsTheFormatsLimitAndNoLonger) {
  const TemporaryFolder folder;
  const auto refusal = [&](std::uint64_t length) {
    std::string bytes = file_of("", "");
    std::memcpy(bytes.data(), &length, 8);
    const auto path = folder.write("w", bytes);
    std::filesystem::resize_file(path, 8 + length);  // sparse zeros, which are not JSON
    return message_of<FormatError>([&] { SafetensorsReader{path}; });
  };
  EXPECT_THAT(refusal(100'000'000), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(100'000'001), HasSubstr("(limit 100000000)"));
}

TEST(SafetensorsReader, AFileThatShrinksIsAnErrorThatSaysWhere) {
  const TemporaryFolder folder;
  write_two(folder / "w");
  SafetensorsReader reader{folder / "w"};
  const std::uint64_t first = reader.entries().at("a").first_byte;
  std::filesystem::resize_file(folder / "w", first + 4);
  Floats values(4);
  EXPECT_THAT(message_of<FormatError>([&] { reader.read("a", 0, values); }),
              HasSubstr("at byte " + std::to_string(first)));
  EXPECT_EQ(read_all(reader, "b"), count_from(1, 6)) << "what is there can still be read";
}

TEST(SafetensorsWriter, TheFileAppearsWholeOrNotAtAll) {
  const TemporaryFolder folder;
  folder.write("w", "what was there before");
  {
    SafetensorsWriter writer{folder / "w", {{"x", {3}}}};
    writer.write("x", Floats(3));
    EXPECT_EQ(bytes_of(folder / "w"), "what was there before");
  }
  EXPECT_EQ(bytes_of(folder / "w"), "what was there before");
  EXPECT_EQ(entries_of(folder), 1) << "an unfinished file was left";
  write_two(folder / "w");
  EXPECT_EQ(SafetensorsReader{folder / "w"}.entries().size(), 2U);
  EXPECT_EQ(entries_of(folder), 1);
}

TEST(SafetensorsWriter, NeverWritesThroughAFileOfAnEarlierVersion) {
  const TemporaryFolder folder;
  folder.write("text", "what somebody trains on");
  std::filesystem::create_symlink("text", folder / "w.partial");
  write_two(folder / "w");
  EXPECT_EQ(SafetensorsReader{folder / "w"}.entries().size(), 2U);
  EXPECT_EQ(bytes_of(folder / "text"), "what somebody trains on");
}

TEST(SafetensorsWriter, TakesTensorsInTheDeclaredOrderOnly) {
  const TemporaryFolder folder;
  SafetensorsWriter writer{folder / "w", {{"x", {3}}, {"y", {1}}}};
  EXPECT_THROW(writer.write("y", Floats(1)), ContractError);
  EXPECT_THROW(writer.write("x", Floats(2)), ContractError);
  writer.write("x", count_from(0, 3));  // the refusal changed nothing
  EXPECT_THROW(writer.finish(), ContractError);
  writer.write("y", Floats(1));
  EXPECT_THROW(writer.write("z", Floats(1)), ContractError);
  writer.finish();
  EXPECT_THROW(writer.finish(), ContractError);
  EXPECT_THROW(writer.write("x", Floats(3)), ContractError);
  SafetensorsReader reader{folder / "w"};
  EXPECT_EQ(read_all(reader, "x"), count_from(0, 3));
}

TEST(SafetensorsWriter, RefusesNamesThatAFileCannotHold) {
  const TemporaryFolder folder;
  const auto declare = [&](std::vector<SafetensorsWriter::Declared> tensors) {
    SafetensorsWriter{folder / "w", std::move(tensors)};
  };
  EXPECT_THROW(declare({{"", {1}}}), ContractError);
  EXPECT_THROW(declare({{"x", {1}}, {"x", {2}}}), ContractError);
  EXPECT_THROW(declare({{"__metadata__", {1}}}), ContractError);
  EXPECT_THROW(declare({{"\xFF", {1}}}), ContractError);
  EXPECT_THROW(declare({{"x", {INT64_MAX}}}), ContractError);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, AFolderThatCannotBeWrittenIsAClearError) {
  const TemporaryFolder folder;
  folder.write("file", "x");
  const auto refusal = [](const std::filesystem::path& path) {
    return message_of<Error>([&] { SafetensorsWriter{path, {}}; });
  };
  EXPECT_THAT(refusal(folder / "missing/w"),
              AllOf(HasSubstr((folder / "missing/w").string()), HasSubstr("No such file")));
  EXPECT_THAT(refusal(folder / "file/w"), HasSubstr("Not a directory"));
}

TEST(SafetensorsWriter, ANameThatAFolderHasIsRefusedAtOnce) {
  const TemporaryFolder folder;
  folder.write("w/inside", "x");
  EXPECT_THAT(message_of<Error>([&] { SafetensorsWriter{folder / "w", {}}; }),
              AllOf(HasSubstr((folder / "w").string()), HasSubstr("it is a folder")));
  EXPECT_EQ(entries_of(folder), 1);
}

TEST(SafetensorsWriter, AFullDiskIsAClearErrorAndLeavesNothing) {
  const TemporaryFolder folder;
  folder.write("w", "what was there before");
  const SmallFiles limited{4'096};
  SafetensorsWriter writer{folder / "w", {{"x", {2'000}}}};
  EXPECT_THAT(message_of<Error>([&] { writer.write("x", Floats(2'000)); }),
              AllOf(HasSubstr((folder / "w").string()), HasSubstr("File too large")));
  EXPECT_THROW(writer.write("x", Floats(2'000)), ContractError);
  EXPECT_EQ(entries_of(folder), 1);
  EXPECT_EQ(bytes_of(folder / "w"), "what was there before");
}

}  // namespace
}  // namespace tessera::safetensors_test
