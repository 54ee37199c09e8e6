// How a rank's share is divided into rounds of a buffer.
#include "checkpoint/buffer_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/file_pages.hpp"

namespace tessera::buffer_plan_test {
namespace {

constexpr std::size_t kMostBytes = 20'000;

/// Byte `byte` of an element's value in the share.
char value_at(std::size_t piece, std::int64_t elem, std::size_t byte) {
  const auto hash = (piece * 8'191 + static_cast<std::size_t>(elem) * 8 + byte) * 2'654'435'761U;
  return static_cast<char>(1 + (hash >> 16U) % 255);  // 0: nothing is there
}

/// A share of random pieces, and the files that they are in.
class RandomShare {
 public:
  enum class For : std::uint8_t { load, save };  // a save has nothing beside

  RandomShare(unsigned seed, For use) : random_{seed}, use_{use} {
    for (std::size_t piece = 0; piece < 24; ++piece) { add_piece(piece); }
  }

  [[nodiscard]] checkpoint::BufferPlan& plan() { return plan_; }
  [[nodiscard]] std::size_t elems() const { return elems_; }
  /// What runs write to the files.
  [[nodiscard]] const std::vector<std::string>& files() const { return files_; }

  static std::string own_of(const checkpoint::BufferPart& part) { return values_of(part, 0, 4); }
  static std::string beside_of(const checkpoint::BufferPart& part) {
    return part.beside.bytes == 0 ? "" : values_of(part, 4, 1);
  }

 private:
  static std::string values_of(const checkpoint::BufferPart& part, std::size_t first,
                               std::size_t bytes) {
    std::string values;
    for (std::int64_t elem = part.elems.first; elem < part.elems.end(); ++elem) {
      for (std::size_t b = 0; b < bytes; ++b) { values += value_at(part.piece, elem, first + b); }
    }
    return values;
  }

  // The pieces of file 0 or 1 follow each other, some with gaps; file 2 has what is beside.
  void add_piece(std::size_t piece) {
    const std::size_t file = piece / 12;
    if (piece % 12 == 0 || random_() % 3 == 0) { files_[file].resize(files_[file].size() + gap()); }
    if (random_() % 2 == 0) { files_[2].resize(files_[2].size() + gap()); }
    const checkpoint::FileArray own{file, files_[file].size(), 4};
    const checkpoint::FileArray beside{2, files_[2].size(), 1};
    const auto kind = random_() % 6;  // 0: not in the files; 1: in runs; 2: completed
    const bool completed = kind == 2 && use_ == For::load;
    std::int64_t at = random_() % 2 == 0 ? 0 : end_;  // as if the piece before went on
    std::int64_t in_array = 0;
    for (std::size_t parts = 1 + random_() % 8; parts > 0; --parts) {
      const auto elems = static_cast<std::int64_t>(1 + random_() % 1'024);
      checkpoint::BufferPart part{.piece = piece,
                                  .elems = {at, elems},
                                  .in_runs = kind == 1,
                                  .grows = kind > 1 && !completed,
                                  .own = {{in_array, elems}, static_cast<std::size_t>(elems) * 4}};
      if (completed) { part.beside = {{in_array, elems}, static_cast<std::size_t>(elems)}; }
      plan_.add(part, kind == 0 ? nullptr : &own, completed ? &beside : nullptr);
      if (kind > 1) {
        files_[file] += own_of(part);
        files_[2] += beside_of(part);
        in_array += elems;
        if (random_() % 5 == 0) {  // another rank's element
          files_[file].resize(files_[file].size() + 4);
          files_[2].resize(files_[2].size() + (completed ? 1 : 0));
          ++in_array;
        }
      }
      elems_ += static_cast<std::size_t>(elems);
      at += elems + (random_() % 4 == 0 ? 1 : 0);
    }
    end_ = at;
    if (kind < 2) { files_[file].resize(files_[file].size() + gap()); }  // where they are
  }
  std::size_t gap() { return 1 + random_() % 9'000; }

  std::mt19937 random_;
  For use_;
  checkpoint::BufferPlan plan_{kMostBytes};
  std::vector<std::string> files_{3};
  std::size_t elems_ = 0;
  std::int64_t end_ = 0;  // of the last piece's elements
};

/// Whether the bytes of a part are in no run of its round.
bool is_apart(const checkpoint::BufferRound& round, const checkpoint::BufferedElems& part) {
  return std::ranges::none_of(round.runs, [&](const checkpoint::BufferRun& run) {
    return part.at >= run.at && part.at + part.bytes <= run.end();
  });
}

void put(std::string& buffer, std::size_t at, const std::string& bytes) {
  ASSERT_LE(at + bytes.size(), buffer.size());
  buffer.replace(at, bytes.size(), bytes);
}

/// A buffer with what a round's parts have in the share.
std::string filled(const checkpoint::BufferRound& round) {
  std::string buffer(round.end, '\0');
  for (const checkpoint::BufferPart& part : round.parts) {
    put(buffer, part.own.at, RandomShare::own_of(part));
    put(buffer, part.beside.at, RandomShare::beside_of(part));
  }
  return buffer;
}

TEST(BufferPlan, ALoadFindsEveryElementOfTheShareInItsBuffer) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    RandomShare share{seed, RandomShare::For::load};
    std::size_t elems = 0;
    for (const checkpoint::BufferRound& round : share.plan().rounds()) {
      EXPECT_TRUE(round.end <= kMostBytes || round.parts.size() == 1);
      std::string buffer(round.end, '\0');
      for (const checkpoint::BufferRun& run : round.runs) {
        EXPECT_EQ(run.at % checkpoint::kFilePage, run.first % checkpoint::kFilePage);
        EXPECT_EQ(buffer.find_first_not_of('\0', run.at), std::string::npos) << "runs overlap";
        put(buffer, run.at, share.files()[run.file].substr(run.first, run.bytes));
      }
      for (const checkpoint::BufferPart& part : round.parts) {
        if (!is_apart(round, part.own)) { continue; }
        EXPECT_EQ(part.own.at % checkpoint::kFilePage, 0U);
        put(buffer, part.own.at, RandomShare::own_of(part));
      }
      const checkpoint::BufferPart* last = nullptr;
      for (const checkpoint::BufferPart& part : round.parts) {
        elems += static_cast<std::size_t>(part.elems.elems);
        EXPECT_EQ(part.own.elems.elems, part.elems.elems);
        ASSERT_EQ(buffer.substr(part.own.at, part.own.bytes), RandomShare::own_of(part));
        ASSERT_EQ(buffer.substr(part.beside.at, part.beside.bytes), RandomShare::beside_of(part));
        EXPECT_FALSE(last != nullptr && last->grows && part.grows && last->piece == part.piece &&
                     last->elems.end() == part.elems.first &&
                     last->own.at + last->own.bytes == part.own.at)
            << "the part does not grow";
        last = &part;
      }
    }
    EXPECT_EQ(elems, share.elems());
  }
}

TEST(BufferPlan, ASaveWritesEveryByteOnceAndNoPageInTwoRounds) {
  std::size_t carried = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    RandomShare share{seed, RandomShare::For::save};
    share.plan().cut_at_pages();
    std::vector<std::string> files(3);
    for (std::size_t f = 0; f < 3; ++f) { files[f].resize(share.files()[f].size()); }
    std::string before;
    const checkpoint::BufferRun* last = nullptr;
    for (const checkpoint::BufferRound& round : share.plan().rounds()) {
      std::string buffer = filled(round);
      if (round.carried > 0) {
        ASSERT_LT(round.carried, checkpoint::kFilePage);
        ASSERT_LE(round.carried, round.runs.front().bytes);
        ASSERT_LE(round.carried_from + round.carried, before.size());
        put(buffer, round.runs.front().at, before.substr(round.carried_from, round.carried));
        ++carried;
      }
      for (const checkpoint::BufferRun& run : round.runs) {
        EXPECT_EQ(run.at % checkpoint::kFilePage, run.first % checkpoint::kFilePage);
        const bool follows = last != nullptr && &run == round.runs.data() &&
                             last->file == run.file && last->end_in_file() == run.first;
        if (follows) { EXPECT_EQ(run.first % checkpoint::kFilePage, 0U) << "a page is cut"; }
        ASSERT_LE(run.end_in_file(), files[run.file].size());
        const std::string there = files[run.file].substr(run.first, run.bytes);
        EXPECT_EQ(there, std::string(run.bytes, '\0')) << "bytes are written twice";
        put(files[run.file], run.first, buffer.substr(run.at, run.bytes));
        last = &run;
      }
      before = buffer;
    }
    EXPECT_EQ(files, share.files());
  }
  EXPECT_GT(carried, 100U);
}

}  // namespace
}  // namespace tessera::buffer_plan_test
