#include "tessera/data/documents.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "support/temporary_folder.hpp"
#include "tessera/base/error.hpp"
#include "tessera/base/ignored_target.hpp"
#include "tessera/data/loader.hpp"

namespace tessera::documents_test {
namespace {

using test::message_of;
using test::TemporaryFolder;
using testing::AllOf;
using testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;
using Starts = std::vector<std::int64_t>;

class InMemory : public TokenSource {
 public:
  explicit InMemory(Tokens tokens) : tokens_{std::move(tokens)} {}
  std::int64_t size() const noexcept override { return std::ssize(tokens_); }
  std::string name() const override { return "tokens"; }
  void read(std::int64_t first, std::span<std::int32_t> out) const override {
    std::copy_n(tokens_.begin() + first, out.size(), out.begin());
  }

 private:
  Tokens tokens_;
};

std::shared_ptr<const TokenSource> source_of(Tokens tokens) {
  return std::make_shared<InMemory>(std::move(tokens));
}

/// A NumPy array of `width` bytes an integer.
std::string npy(const Starts& values, std::size_t width = 8) {
  std::string header = "{'descr': '<i" + std::to_string(width) +
                       "', 'fortran_order': False, 'shape': (" + std::to_string(values.size()) +
                       ",), }";
  header.resize(117, ' ');
  header += '\n';
  std::string bytes = std::string{"\x93NUMPY\x01\x00", 8} + static_cast<char>(118) + '\0' + header;
  for (const std::int64_t value : values) {
    for (std::size_t b = 0; b < width; ++b) {
      bytes += static_cast<char>((static_cast<std::uint64_t>(value) >> (8 * b)) & 0xFFU);
    }
  }
  return bytes;
}

// Against the definition, token by token, for windows of several lengths.
TEST(Documents, WindowsBeginAndEndDocumentsWhereTheSourceDoes) {
  constexpr std::int32_t kEnd = 9;
  std::mt19937 generator{4};
  for (const std::int64_t seq : {1, 3, 8, 50}) {
    Tokens tokens, mask;
    Starts starts{0};
    for (std::int64_t i = 0; i < 51; ++i) {
      tokens.push_back(static_cast<std::int32_t>(generator() % 10));
      mask.push_back(static_cast<std::int32_t>(generator() % 2));
      if (tokens.back() == kEnd) { starts.push_back(i + 1); }
    }
    const auto source = source_of(tokens);
    const auto of_starts = std::make_shared<const Starts>(starts);
    for (const bool masked : {false, true}) {
      const auto values = masked ? source_of(mask) : nullptr;
      for (const Documents& documents :
           {Documents{.separator = kEnd, .mask = values},
            Documents{.starts = of_starts, .mask = values}, Documents{.mask = values}}) {
        TokenLoader loader{source, seq, {.shuffle = Shuffle::off}, 0, documents};
        for (std::int64_t first = 0; first + seq < 51; first += seq) {
          const TokenBatch batch = loader.next();
          ASSERT_EQ(batch.first_keys.size(),
                    documents.packed() ? batch.inputs.size() : std::size_t{0});
          for (std::int64_t t = 0; t < seq; ++t) {
            const auto at = static_cast<std::size_t>(first + t);
            const bool ends = documents.packed() && tokens[at] == kEnd;
            const bool counts = !ends && (!masked || mask[at + 1] == 1);
            EXPECT_EQ(batch.targets[static_cast<std::size_t>(t)],
                      counts ? tokens[at + 1] : kIgnoredTarget);
            if (!documents.packed()) { continue; }
            std::int64_t begin = t;
            while (begin > 0 && tokens[static_cast<std::size_t>(first + begin - 1)] != kEnd) {
              --begin;
            }
            EXPECT_EQ(batch.first_keys[static_cast<std::size_t>(t)], begin);
          }
        }
      }
    }
  }
}

TEST(DocumentStarts, AreReadFromIntegersOfAnyWidth) {
  const TemporaryFolder folder;
  const Starts starts{0, 5, 6, 30'000};
  for (const std::size_t width : {2U, 4U, 8U}) {
    EXPECT_EQ(*read_document_starts(folder.write("s.npy", npy(starts, width))), starts);
  }
  const Starts far{0, std::int64_t{1} << 40};
  EXPECT_EQ(*read_document_starts(folder.write("s.npy", npy(far))), far);
}

TEST(DocumentStarts, ThatAreNonePrintWhatIsWrong) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& bytes) {
    const auto path = folder.write("s.npy", bytes);
    return message_of<Error>([&] { static_cast<void>(read_document_starts(path)); });
  };
  EXPECT_THAT(refusal(npy({1, 5})), AllOf(HasSubstr("s.npy"), HasSubstr("is not 0")));
  EXPECT_THAT(refusal(npy({0, 5, 5})), HasSubstr("position 5, of document 2, is not above 5"));
  EXPECT_THAT(refusal(npy({0, -3})), HasSubstr("position -3, of document 1, is not above 0"));
  EXPECT_THAT(refusal("0\n5\n"), HasSubstr("not a NumPy array of integers"));
  EXPECT_THAT(refusal(npy({})), HasSubstr("a document begins at 0"));
  EXPECT_THAT(
      message_of<Error>([&] { static_cast<void>(read_document_starts(folder.path() / "none")); }),
      HasSubstr("none"));
}

TEST(CheckDocuments, NamesWhatDoesNotFitTheSource) {
  const auto source = source_of({1, 2, 3, 2, 5});
  const auto refusal = [&](const Documents& documents) {
    return message_of<Error>([&] { check_documents(*source, documents); });
  };
  EXPECT_THAT(refusal({.separator = 4}), HasSubstr("no token is 4, which is to end each document"));
  EXPECT_THAT(refusal({.starts = std::make_shared<const Starts>(Starts{0, 6})}),
              HasSubstr("a document begins at position 6, but there are 5 tokens"));
  check_documents(*source, {.starts = std::make_shared<const Starts>(Starts{0, 3, 5})});
  EXPECT_THAT(refusal({.starts = std::make_shared<const Starts>(Starts{0, 1, 2, 3, 4})}),
              HasSubstr("no token counts"));
  EXPECT_THAT(refusal({.separator = 1, .mask = source_of({0, 1, 0, 0, 0})}),
              HasSubstr("no token counts"));
  EXPECT_THAT(refusal({.mask = source_of({1, 1, 1, 1})}),
              HasSubstr("a mask of 4 bytes for the 5 tokens of tokens"));
  EXPECT_THAT(refusal({.mask = source_of({1, 1, 2, 1, 0})}), HasSubstr("byte 2 is 2"));
  EXPECT_THAT(refusal({.mask = source_of({1, 0, 0, 0, 0})}), HasSubstr("no token counts"));
  EXPECT_THROW(check_documents(
                   *source, {.separator = 2, .starts = std::make_shared<const Starts>(Starts{0})}),
               ContractError);
  check_documents(*source, {.separator = 2, .mask = source_of({0, 0, 0, 1, 0})});
}

}  // namespace
}  // namespace tessera::documents_test
