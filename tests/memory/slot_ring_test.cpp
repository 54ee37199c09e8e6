#include "tessera/memory/slot_ring.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"

namespace tessera::slot_ring_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::size_t kSlotBytes = 256;
constexpr std::size_t kSlotFloats = kSlotBytes / sizeof(float);

class SlotRings : public testing::Test {
 protected:
  SlotRing ring(int slots, SlotPoison poison = SlotPoison::off) {
    arena = Arena{Buffer{*device, tracker, Category::gather,
                         static_cast<std::size_t>(slots) * Arena::need(kSlotBytes), "slots",
                         BufferUse::parts}};
    return {{*device, tracker, Category::gather, poison}, arena, slots, kSlotBytes};
  }
  static void write(Stream stream, const Slot& slot, float value) {
    auto* const data = static_cast<float*>(slot.data());
    device::enqueue(stream, [data, value] { std::fill_n(data, kSlotFloats, value); });
    stream.record(slot.produced());
  }

  std::unique_ptr<Device> device = make_cpu_device();
  MemoryTracker tracker;
  Arena arena;
  OwnedStream compute = device->make_compute_stream();
  OwnedStream gather = device->make_side_stream("gather");
  OwnedStream reader = device->make_side_stream("reader");
};

TEST_F(SlotRings, TakeExactlyTheirPartOfTheArena) {
  const SlotRing slots = ring(3);
  EXPECT_EQ(slots.size(), 3);
  EXPECT_EQ(slots.free(), 3);
  EXPECT_EQ(arena.taken_bytes(), 3 * Arena::need(kSlotBytes));
}

TEST_F(SlotRings, AnArenaTooSmallIsRefused) {
  Arena small{Buffer{*device, tracker, Category::gather, kSlotBytes, "small"}};
  EXPECT_THROW((SlotRing{{*device, tracker, Category::gather}, small, 2, kSlotBytes}),
               ContractError);
  EXPECT_THROW((SlotRing{{*device, tracker, Category::gather}, small, -1, kSlotBytes}),
               ContractError);
}

// The slot that has been free longest is used first: its readers have most likely finished.
TEST_F(SlotRings, ContinueAfterTheLastHandedOutSlot) {
  SlotRing slots = ring(4);
  std::vector<Slot*> all;
  for (int i = 0; i < 4; ++i) { all.push_back(&slots.acquire("h", 1, gather.get())); }
  slots.release(*all[1], compute.get());
  EXPECT_EQ(&slots.acquire("h", 1, gather.get()), all[1]);
  slots.release(*all[0], compute.get());
  slots.release(*all[3], compute.get());
  EXPECT_EQ(&slots.acquire("h", 1, gather.get()), all[3]);
  EXPECT_EQ(&slots.acquire("h", 1, gather.get()), all[0]);
}

TEST_F(SlotRings, HandOutSlotsInTurnAndKnowTheirOwners) {
  SlotRing slots = ring(2);
  Slot& first = slots.acquire("h.0", kSlotBytes, gather.get());
  Slot& second = slots.acquire("h.1", 1, gather.get());
  EXPECT_NE(first.data(), second.data());
  EXPECT_EQ(first.owner(), "h.0");
  EXPECT_EQ(second.owner(), "h.1");
  EXPECT_TRUE(first.taken());
  EXPECT_EQ(slots.free(), 0);
  slots.release(first, compute.get());
  EXPECT_FALSE(first.taken());
  EXPECT_EQ(slots.free(), 1);
  EXPECT_EQ(&slots.acquire("h.2", kSlotBytes, gather.get()), &first);
  slots.release(first, compute.get());
  slots.release(second, compute.get());
  EXPECT_EQ(&slots.acquire("h.3", kSlotBytes, gather.get()), &second);
}

TEST_F(SlotRings, AMovedRingKeepsItsSlots) {
  SlotRing from = ring(1);
  Slot& slot = from.acquire("h.0", 1, gather.get());
  SlotRing to = std::move(from);
  to.release(slot, compute.get());
  EXPECT_EQ(to.free(), 1);
}

TEST_F(SlotRings, AnExhaustedRingNamesTheAskerAndTheOwners) {
  SlotRing slots = ring(2);
  Slot& first = slots.acquire("h.0", 1, gather.get());
  (void)slots.acquire("h.1", 1, gather.get());
  EXPECT_THAT([&] { (void)slots.acquire("h.2", 1, gather.get()); },
              ThrowsMessage<ContractError>(AllOf(HasSubstr("no free gather slot for h.2"),
                                                 HasSubstr("all 2"), HasSubstr("h.0, h.1"))));
  slots.release(first, compute.get());
  EXPECT_NO_THROW((void)slots.acquire("h.2", 1, gather.get()));
}

TEST_F(SlotRings, ARingOfNoSlotsIsExhausted) {
  SlotRing slots = ring(0);
  EXPECT_THROW((void)slots.acquire("h.0", 1, gather.get()), ContractError);
  SlotRing none;
  EXPECT_THROW((void)none.acquire("h.0", 1, gather.get()), ContractError);
}

TEST_F(SlotRings, ATooLargeRequestNamesTheAskerAndBothSizes) {
  SlotRing slots = ring(1);
  EXPECT_THAT([&] { (void)slots.acquire("wte", kSlotBytes + 1, gather.get()); },
              ThrowsMessage<ContractError>(
                  AllOf(HasSubstr("wte needs"), HasSubstr("257 bytes"), HasSubstr("256 bytes"))));
  EXPECT_EQ(slots.free(), 1);
}

TEST_F(SlotRings, ReleasingTwiceNamesTheLastOwner) {
  SlotRing slots = ring(1);
  Slot& slot = slots.acquire("h.0", 1, gather.get());
  slots.release(slot, compute.get());
  EXPECT_THAT([&] { slots.release(slot, compute.get()); },
              ThrowsMessage<ContractError>(
                  AllOf(HasSubstr("gather slot was released twice"), HasSubstr("h.0"))));
  EXPECT_EQ(slots.free(), 1);
}

TEST_F(SlotRings, ALeakedSlotIsNamedByCategoryAndUnit) {
  SlotRing slots = ring(3);
  Slot& first = slots.acquire("h.0", 1, gather.get());
  EXPECT_THROW(slots.require_all_free(), ContractError);
  (void)slots.acquire("h.1", 1, gather.get());
  slots.release(first, compute.get());
  EXPECT_THAT([&] { slots.require_all_free(); },
              ThrowsMessage<ContractError>(
                  AllOf(HasSubstr("gather slots were never released"), HasSubstr("by h.1"))));
  EXPECT_NO_THROW(ring(2).require_all_free());
}

TEST_F(SlotRings, AWriteAfterTheReleaseIsNamedByCategoryAndUnit) {
  SlotRing slots = ring(1, SlotPoison::nan);
  Slot& slot = slots.acquire("h.0", 1, gather.get());
  write(gather.get(), slot, 1.0F);
  slots.release(slot, gather.get());
  auto* const late = static_cast<float*>(slot.data());
  device::enqueue(gather.get(), [late] { late[3] = 2.0F; });
  (void)slots.acquire("h.1", 1, gather.get());
  EXPECT_THAT([&] { gather.get().wait(); },
              ThrowsMessage<ContractError>(
                  AllOf(HasSubstr("the gather slot of h.0"), HasSubstr("written after"))));
}

TEST_F(SlotRings, CountTheRequestedBytesAsInUse) {
  SlotRing slots = ring(2);
  const auto in_use = [&] { return tracker.report().in_use[Category::gather]; };
  EXPECT_EQ(tracker.report().live[Category::gather], 2 * kSlotBytes);
  EXPECT_EQ(in_use(), 0U);
  Slot& first = slots.acquire("h.0", 100, gather.get());
  Slot& second = slots.acquire("h.1", kSlotBytes, gather.get());
  EXPECT_EQ(in_use(), 100 + kSlotBytes);
  slots.release(first, compute.get());
  EXPECT_EQ(in_use(), kSlotBytes);
  slots.release(second, compute.get());
  EXPECT_EQ(in_use(), 0U);
  EXPECT_EQ(tracker.report().most_in_use_bytes, 100 + kSlotBytes);
}

TEST_F(SlotRings, ASlotOfAnotherRingIsRefused) {
  SlotRing slots = ring(1);
  Arena elsewhere{Buffer{*device, tracker, Category::reduce, kSlotBytes, "elsewhere"}};
  SlotRing other{{*device, tracker, Category::gather}, elsewhere, 1, kSlotBytes};
  Slot& foreign = other.acquire("h.7", 1, gather.get());
  EXPECT_THAT([&] { slots.release(foreign, compute.get()); },
              ThrowsMessage<ContractError>(AllOf(HasSubstr("another ring"), HasSubstr("h.7"))));
  EXPECT_TRUE(foreign.taken());
}

// The reader is blocked while it reads. Only the slot's event keeps the next writer away.
TEST_F(SlotRings, TheNextWriterStartsAfterTheLastReaderHasFinished) {
  SlotRing slots = ring(1);
  std::latch open{1};
  float before = 0;
  float after = 0;
  std::atomic<bool> finished{false};
  Slot& slot = slots.acquire("h.0", kSlotBytes, gather.get());
  const auto* const data = static_cast<const float*>(slot.data());
  write(gather.get(), slot, 1.0F);
  reader.get().wait_for(slot.produced());
  device::enqueue(reader.get(), [&] {
    before = data[0];
    open.wait();
    after = data[kSlotFloats - 1];
    finished = true;
  });
  slots.release(slot, reader.get());

  Slot& again = slots.acquire("h.1", kSlotBytes, gather.get());
  bool overtaken = true;
  device::enqueue(gather.get(), [&] { overtaken = !finished; });
  write(gather.get(), again, 2.0F);
  open.count_down();
  compute.get().wait_for(again.produced());
  EXPECT_FALSE(overtaken);
  EXPECT_EQ(before, 1.0F);
  EXPECT_EQ(after, 1.0F);
  EXPECT_EQ(data[0], 2.0F);
  reader.get().wait();
}

// The slot is released without being read: the producer may still be writing.
TEST_F(SlotRings, TheNextWriterStartsAfterTheLastProducerHasFinished) {
  SlotRing slots = ring(1);
  std::latch open{1};
  Slot& slot = slots.acquire("h.0", kSlotBytes, gather.get());
  device::enqueue(gather.get(), [&] { open.wait(); });
  write(gather.get(), slot, 1.0F);
  slots.release(slot, compute.get());
  Slot& again = slots.acquire("h.1", kSlotBytes, reader.get());
  write(reader.get(), again, 2.0F);
  open.count_down();
  reader.get().wait();
  gather.get().wait();
  EXPECT_EQ(static_cast<const float*>(again.data())[0], 2.0F);
}

TEST_F(SlotRings, AcquiringDoesNotBlockIfTheWriterHasAThread) {
  SlotRing slots = ring(1);
  std::latch open{1};
  device::enqueue(reader.get(), [&] { open.wait(); });
  Slot& slot = slots.acquire("h.0", 1, gather.get());
  slots.release(slot, reader.get());
  (void)slots.acquire("h.1", 1, gather.get());
  open.count_down();  // reached only if the calls above returned
  gather.get().wait();
  reader.get().wait();
}

TEST_F(SlotRings, PoisonShowsNanToALateReader) {
  SlotRing slots = ring(2, SlotPoison::nan);
  Slot& slot = slots.acquire("h.0", kSlotBytes, gather.get());
  Slot& neighbour = slots.acquire("h.1", kSlotBytes, gather.get());
  write(gather.get(), slot, 1.0F);
  write(gather.get(), neighbour, 5.0F);
  reader.get().wait_for(slot.produced());
  slots.release(slot, reader.get());
  reader.get().wait();
  gather.get().wait();
  const auto* const late = static_cast<const float*>(slot.data());
  EXPECT_TRUE(std::all_of(late, late + kSlotFloats, [](float x) { return std::isnan(x); }));
  EXPECT_EQ(static_cast<const float*>(neighbour.data())[0], 5.0F);
}

// Poison is written on the reader's stream before the event that the next writer waits for: it hits
// neither a reader still at work nor the next contents.
TEST_F(SlotRings, PoisonFallsBetweenTheLastReaderAndTheNextWriter) {
  SlotRing slots = ring(1, SlotPoison::nan);
  std::latch open{1};
  float read = 0;
  Slot& slot = slots.acquire("h.0", kSlotBytes, gather.get());
  const auto* const data = static_cast<const float*>(slot.data());
  write(gather.get(), slot, 1.0F);
  reader.get().wait_for(slot.produced());
  device::enqueue(reader.get(), [&] {
    open.wait();
    read = data[0];
  });
  slots.release(slot, reader.get());
  Slot& again = slots.acquire("h.1", kSlotBytes, gather.get());
  float found = 0;
  device::enqueue(gather.get(), [&] { found = data[0]; });
  write(gather.get(), again, 2.0F);
  open.count_down();
  gather.get().wait();
  reader.get().wait();
  EXPECT_EQ(read, 1.0F);
  EXPECT_TRUE(std::isnan(found));
  EXPECT_EQ(data[0], 2.0F);
}

TEST_F(SlotRings, WithoutPoisonTheContentsStay) {
  SlotRing slots = ring(1);
  Slot& slot = slots.acquire("h.0", kSlotBytes, compute.get());
  write(compute.get(), slot, 1.0F);
  slots.release(slot, compute.get());
  EXPECT_EQ(static_cast<const float*>(slot.data())[0], 1.0F);
}

TEST_F(SlotRings, AReadersErrorReachesTheNextWriterAndFreesTheSlot) {
  SlotRing slots = ring(1);
  Slot& slot = slots.acquire("h.0", 1, gather.get());
  device::enqueue(reader.get(), [] { throw std::runtime_error("kaput"); });
  slots.release(slot, reader.get());
  EXPECT_THAT([&] { (void)slots.acquire("h.1", 1, compute.get()); },
              ThrowsMessage<std::runtime_error>("kaput"));
  EXPECT_EQ(slots.free(), 1);
  EXPECT_EQ(slot.owner(), "h.0");
}

}  // namespace
}  // namespace tessera::slot_ring_test
