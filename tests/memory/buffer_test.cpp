#include "tessera/memory/buffer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::buffer_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

constexpr std::size_t kTooMuch = std::size_t{1} << 50;

std::uintptr_t address(const void* data) {
  return reinterpret_cast<std::uintptr_t>(data);
}

static_assert(!std::is_copy_constructible_v<Buffer>);
static_assert(std::is_nothrow_move_constructible_v<Buffer>);
static_assert(std::is_nothrow_move_assignable_v<Buffer>);

class Buffers : public testing::Test {
 protected:
  Buffer make(std::size_t bytes, Category category = Category::parameters,
              std::string name = "weights") {
    return {*device, tracker, category, bytes, std::move(name)};
  }
  [[nodiscard]] std::size_t live(Category category) const {
    return tracker.report().live[category];
  }

  std::unique_ptr<Device> device = make_cpu_device();
  trace::Recorder recorder;
  MemoryTracker tracker{&recorder};
};

TEST_F(Buffers, AreCountedInMultiplesOf128WhileTheyLive) {
  for (const std::size_t bytes : {1U, 127U, 128U, 129U, 1000U}) {
    const std::size_t counted = (bytes + 127) / 128 * 128;
    {
      const Buffer buffer = make(bytes);
      EXPECT_EQ(buffer.bytes(), counted);
      EXPECT_EQ(address(buffer.data()) % 128, 0U);
      EXPECT_EQ(live(Category::parameters), counted);
      std::memset(buffer.data(), 1, buffer.bytes());
    }
    EXPECT_EQ(live(Category::parameters), 0U);
  }
}

TEST_F(Buffers, OfNoBytesHoldNothing) {
  const Buffer none;
  const Buffer empty = make(0);
  EXPECT_EQ(none.data(), nullptr);
  EXPECT_EQ(empty.data(), nullptr);
  EXPECT_EQ(empty.bytes(), 0U);
  EXPECT_EQ(tracker.report().allocations, 0U);
}

TEST_F(Buffers, MoveWithoutBeingCountedTwice) {
  Buffer first = make(256);
  void* const data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(second.name(), "weights");
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): what is tested
  EXPECT_EQ(first.bytes(), 0U);
  EXPECT_EQ(live(Category::parameters), 256U);
  EXPECT_EQ(tracker.report().allocations, 1U);
}

TEST_F(Buffers, FreeTheirMemoryWhenAssignedTo) {
  Buffer buffer = make(256, Category::gradients);
  buffer = make(512, Category::optimizer);
  EXPECT_EQ(live(Category::gradients), 0U);
  EXPECT_EQ(live(Category::optimizer), 512U);
  Buffer& same = buffer;
  buffer = std::move(same);
  EXPECT_EQ(buffer.bytes(), 512U);
  buffer = Buffer{};
  EXPECT_EQ(tracker.report().live.total(), 0U);
}

TEST_F(Buffers, AreRecordedWithCategoryNameAndBytes) {
  { const Buffer buffer = make(100, Category::optimizer, "moments"); }
  const std::vector<trace::Record> records = recorder.records();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].kind, trace::Kind::allocate);
  EXPECT_EQ(records[1].kind, trace::Kind::release);
  for (const trace::Record& record : records) {
    EXPECT_EQ(record.what, "optimizer");
    EXPECT_EQ(record.unit, "moments");
    EXPECT_EQ(record.bytes, 128U);
  }
}

TEST_F(Buffers, ARefusalNamesWhatWasAskedAndWhatIsHeld) {
  const Buffer parameters = make(1 << 20);
  const Buffer optimizer = make(2 << 20, Category::optimizer, "moments");
  EXPECT_THAT([&] { (void)make(kTooMuch, Category::gather, "gather slots"); },
              ThrowsMessage<OutOfMemory>(AllOf(
                  HasSubstr("gather slots (gather, 1.00 PiB)"), HasSubstr("on cpu"),
                  HasSubstr("this rank holds 3.00 MiB: parameters 1.00 MiB, optimizer 2.00 MiB"),
                  Not(HasSubstr("gradients")))));
}

TEST_F(Buffers, ARefusalLeavesTheCountsAsTheyWere) {
  const Buffer held = make(128);
  const MemoryReport before = tracker.report();
  for (const std::size_t bytes : {kTooMuch, std::numeric_limits<std::size_t>::max(),
                                  std::numeric_limits<std::size_t>::max() - 127}) {
    EXPECT_THROW((void)make(bytes), OutOfMemory) << bytes;
  }
  EXPECT_EQ(tracker.report().live, before.live);
  EXPECT_EQ(tracker.report().allocations, before.allocations);
  EXPECT_EQ(tracker.report().peak_bytes, before.peak_bytes);
}

TEST_F(Buffers, AnArenaCutsAlignedPiecesInOrder) {
  const std::vector<std::size_t> sizes{1, 128, 0, 130, 4};
  std::size_t total = 0;
  for (const std::size_t size : sizes) { total += Arena::need(size); }
  EXPECT_EQ(total, 128U + 128U + 0U + 256U + 128U);
  Arena arena{make(total)};
  std::size_t offset = 0;
  for (const std::size_t size : sizes) {
    EXPECT_EQ(address(arena.take(size)), address(arena.data()) + offset);
    offset += Arena::need(size);
  }
  EXPECT_EQ(arena.taken_bytes(), total);
  EXPECT_EQ(arena.bytes(), total);
}

TEST_F(Buffers, AnArenaTooSmallSaysHowMuchItHas) {
  Arena arena{make(1024, Category::parameters, "parameter shards")};
  (void)arena.take(512);
  EXPECT_THAT(
      [&] { (void)arena.take(640); },
      ThrowsMessage<ContractError>(AllOf(HasSubstr("parameter shards"), HasSubstr("1.00 KiB"),
                                         HasSubstr("512 B left"), HasSubstr("640 B asked for"))));
  EXPECT_EQ(arena.taken_bytes(), 512U);
  EXPECT_NO_THROW((void)arena.take(512));
  EXPECT_THROW((void)arena.take(1), ContractError);
  EXPECT_THROW((void)arena.take(std::numeric_limits<std::size_t>::max()), ContractError);
}

TEST_F(Buffers, AnArenaWithoutABufferHasNothingToGive) {
  Arena arena;
  EXPECT_EQ(arena.take(0), nullptr);
  EXPECT_THROW((void)arena.take(1), ContractError);
}

}  // namespace
}  // namespace tessera::buffer_test
