// How a rank's share is divided into rounds of a buffer.
#include "checkpoint/buffer_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "checkpoint/file_pages.hpp"

namespace tessera::buffer_plan_test {
namespace {

BufferPart part_at(std::int64_t first, std::int64_t elems) {
  return {.elems = {first, elems},
          .grows = true,
          .own = {.elems = {first, elems}, .bytes = static_cast<std::size_t>(elems) * 4}};
}

// Arrays one after the other in two files, some with gaps between them.
class RandomArrays {
 public:
  explicit RandomArrays(unsigned seed) : random_{seed} {}

  void fill(BufferPlan& plan) {
    for (std::size_t file = 0; file < 2; ++file) {
      std::uint64_t end = 100 + random_() % kFilePage;
      for (std::size_t piece = 0; piece < 12; ++piece) {
        const FileArray array{file, end, 4};
        const auto elems = static_cast<std::int64_t>(1 + random_() % 6'000);
        for (std::int64_t at = 0; at < elems; at += 1'024) {
          BufferPart part = part_at(at, std::min<std::int64_t>(1'024, elems - at));
          part.piece = file * 100 + piece;
          bytes_ += part.own.bytes;
          plan.add(part, &array);
        }
        end = array.at(elems) + (random_() % 3 == 0 ? random_() % 9'000 : 0);
      }
    }
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::mt19937 random_;
  std::size_t bytes_ = 0;
};

TEST(BufferPlan, RoundsHoldEveryByteOnceAlignedAsInTheFile) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    BufferPlan plan{20'000};
    RandomArrays arrays{seed};
    arrays.fill(plan);
    std::size_t in_parts = 0;
    std::size_t in_runs = 0;
    for (const BufferRound& round : plan.rounds()) {
      EXPECT_LE(round.end, 20'000U);
      std::size_t end = 0;
      for (const BufferRun& run : round.runs) {
        EXPECT_GE(run.at, end) << "runs overlap";
        EXPECT_EQ(run.at % kFilePage, run.first % kFilePage);
        end = run.end();
        in_runs += run.bytes;
      }
      for (const BufferPart& part : round.parts) { in_parts += part.own.bytes; }
    }
    EXPECT_EQ(in_parts, arrays.bytes());
    EXPECT_EQ(in_runs, arrays.bytes());
  }
}

TEST(BufferPlan, APageThatTwoRoundsShareIsWrittenWithTheSecond) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    SCOPED_TRACE(seed);
    BufferPlan plan{20'000};
    RandomArrays arrays{seed};
    arrays.fill(plan);
    plan.cut_at_pages();
    std::size_t written = 0;
    const BufferRun* last = nullptr;
    for (const BufferRound& round : plan.rounds()) {
      if (round.carried > 0) {
        EXPECT_LT(round.carried, kFilePage);
        EXPECT_LE(round.carried, round.runs.front().bytes);
      }
      for (const BufferRun& run : round.runs) {
        EXPECT_EQ(run.at % kFilePage, run.first % kFilePage);
        const bool follows =
            last != nullptr && last->file == run.file && last->end_in_file() == run.first;
        if (follows) { EXPECT_EQ(run.first % kFilePage, 0U) << "a page is cut"; }
        written += run.bytes;
        last = &run;
      }
    }
    EXPECT_EQ(written, arrays.bytes());
  }
}

}  // namespace
}  // namespace tessera::buffer_plan_test
