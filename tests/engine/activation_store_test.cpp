#include "tessera/engine/activation_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "device/cpu/host_task.hpp"
#include "tessera/base/error.hpp"
#include "tessera/profile/job_memory.hpp"
#include "tessera/profile/plan.hpp"
#include "tessera/world/run.hpp"
#include "world/host_pool.hpp"

namespace tessera::activation_store_test {
namespace {

using ::testing::HasSubstr;

constexpr int kLayers = 6;
constexpr std::int64_t kElems = 1000;
constexpr std::size_t kBytes = kElems * sizeof(float);

template <class Work>
void on_compute(World& world, Work work) {
  world.compute([&] { device::enqueue(world.compute_stream(), work); });
}

/// Forward: x(l+1) = x(l) * 0.5 + l. Backward: the sum of x(l) * (l + 1).
float two_passes(World& world, ActivationStore& store, float first, bool ahead) {
  auto* x = static_cast<float*>(store.open(0));
  on_compute(world, [x, first] { std::fill_n(x, kElems, first); });
  store.save(0);
  for (int layer = 1; layer < kLayers; ++layer) {
    auto* const y = static_cast<float*>(store.open(layer));
    on_compute(world, [x, y, layer] {
      for (std::int64_t i = 0; i < kElems; ++i) { y[i] = x[i] * 0.5F + static_cast<float>(layer); }
    });
    store.close(layer - 1);
    store.save(layer);
    x = y;
  }
  store.close(kLayers - 1);

  std::vector<float> sum(1, 0.0F);
  float* const to = sum.data();
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    const auto* const back = static_cast<const float*>(store.read(layer));
    if (ahead && layer > 0) { store.fetch(layer - 1); }
    on_compute(world, [back, to, layer] {
      *to += *std::min_element(back, back + kElems) * static_cast<float>(layer + 1);
      *to += *std::max_element(back, back + kElems);
    });
    store.close(layer);
  }
  world.compute_stream().wait();
  return sum.front();
}

float expected_sum(float first) {
  float x = first;
  std::vector<float> all{x};
  for (int layer = 1; layer < kLayers; ++layer) {
    x = x * 0.5F + static_cast<float>(layer);
    all.push_back(x);
  }
  float sum = 0.0F;
  for (int layer = kLayers - 1; layer >= 0; --layer) {
    const float value = all[static_cast<std::size_t>(layer)];
    sum += value * static_cast<float>(layer + 1);
    sum += value;
  }
  return sum;
}

TEST(ActivationStore, WhatComesBackIsWhatWentToTheBitWhateverTheTiming) {
  for (const ComputeStream stream : {ComputeStream::caller, ComputeStream::worker}) {
    for (const int slots : {2, 3, kLayers + 1}) {
      for (const bool ahead : {false, true}) {
        for (const std::uint64_t seed : {1U, 2U, 3U}) {
          run_ranks(2,
                    [&](World& world) {
                      ActivationStore store{world,
                                            {.count = kLayers, .bytes = kBytes, .slots = slots}};
                      for (int step = 0; step < 3; ++step) {
                        const auto first = static_cast<float>(step + world.rank());
                        EXPECT_EQ(two_passes(world, store, first, ahead), expected_sum(first))
                            << slots << " slots, seed " << seed;
                      }
                    },
                    {.testing = {.poison = SlotPoison::nan,
                                 .delays = DelayInjection{seed, std::chrono::microseconds{100}},
                                 .compute_stream = stream}});
        }
      }
    }
  }
}

TEST(ActivationStore, CopiesRunOnAThreadOfTheirOwnWhileTheComputationGoesOn) {
  run_ranks(1,
            [](World& world) {
              ActivationStore store{world, {.count = 2, .bytes = kBytes, .slots = 2}};
              // The copy waits until the computation after it has run. In one queue both would
              // deadlock.
              std::atomic<bool> computed = false;
              device::enqueue(world::HostPool{world}.copy_stream(world::CopyKind::activations),
                              [&computed] {
                                while (!computed) { std::this_thread::yield(); }
                              });
              auto* const x = static_cast<float*>(store.open(0));
              std::fill_n(x, kElems, 2.0F);
              store.save(0);
              auto* const y = static_cast<float*>(store.open(1));
              std::fill_n(y, kElems, 3.0F);
              computed = true;
              store.close(0);
              store.close(1);
              EXPECT_EQ(static_cast<const float*>(store.read(0))[kElems - 1], 2.0F);
              store.close(0);
              std::set<std::uint64_t> threads;
              int copies = 0;
              world::HostPool{world}.copy_stream(world::CopyKind::activations).wait();
              for (const trace::Record& record : world.recorder()->records()) {
                if (record.kind != trace::Kind::copy) { continue; }
                ++copies;
                threads.insert(record.thread);
                EXPECT_EQ(record.stream, "offload");
                EXPECT_EQ(record.bytes, kBytes);
              }
              EXPECT_EQ(copies, 2);
              EXPECT_EQ(threads.size(), 1U);
              EXPECT_EQ(threads.count(trace::this_thread()), 0U);
            },
            {.trace = true});
}

TEST(ActivationStore, PlannedIsMeasuredInBothPools) {
  for (const int ranks : {1, 3}) {
    const auto body = [](World& world) {
      ActivationStore store{world, {.count = kLayers, .bytes = 1001, .slots = 3}};
      for (int step = 0; step < 2; ++step) {
        for (int i = 0; i < kLayers; ++i) {
          (void)store.open(i);
          store.save(i);
          store.close(i);
        }
        for (int i = kLayers - 1; i >= 0; --i) {
          (void)store.read(i);
          if (i > 0) { store.fetch(i - 1); }
          store.close(i);
        }
      }
      const ActivationStoreBytes bytes =
          ActivationStore::bytes_needed({.count = kLayers, .bytes = 1001, .slots = 3});
      EXPECT_EQ(bytes, (ActivationStoreBytes{3 * 1024, kLayers * 1024}));
      EXPECT_EQ(world.memory().report().live[Category::activations], bytes.device);
      EXPECT_EQ(world.host_memory().report().live[Category::activations], bytes.host);
    };
    const std::vector<PlannedRank> planned = plan({.ranks = ranks}, body);
    ASSERT_EQ(planned.size(), 1U);
    EXPECT_EQ(planned[0].host_peak_bytes, kLayers * 1024U);
    run_ranks(ranks, [&](World& world) {
      body(world);
      const JobMemory job = gather_memory(world);
      for (const MemoryReport& report : job.ranks) {
        EXPECT_EQ(report.peak_bytes, planned[0].memory.peak_bytes);
        EXPECT_EQ(report.most_in_use_bytes, planned[0].memory.most_in_use_bytes);
      }
      EXPECT_EQ(job.host_peak_bytes, std::vector<std::size_t>(static_cast<std::size_t>(ranks),
                                                              kLayers * std::size_t{1024}));
      EXPECT_THAT(job.text(), HasSubstr("host pool at its peak: 6.00 KiB"));
    });
  }
}

TEST(HostPool, IsNotPartOfTheDevicesMemoryOrBudget) {
  run_ranks(1,
            [](World& world) {
              const Buffer buffer = world.allocate_host(Category::optimizer, 1 << 20, "states");
              EXPECT_EQ(world.memory().report().live.total(), 0U);
              EXPECT_EQ(world.host_memory().report().live[Category::optimizer], 1U << 20);
              static_cast<char*>(buffer.data())[(1 << 20) - 1] = 1;
            },
            {.budget_bytes = 1000});
  run_ranks(1, [](World& world) {
    EXPECT_EQ(gather_memory(world).text().find("host pool"), std::string::npos);
  });
}

TEST(ActivationStore, CallsOutOfOrderAreRefused) {
  run_ranks(1, [](World& world) {
    EXPECT_THROW((ActivationStore{world, {.count = 0, .bytes = 1}}), ContractError);
    ActivationStore store{world, {.count = 2, .bytes = 8, .slots = 1, .name = "inputs"}};
    const auto refused = [](const auto& call) -> std::string {
      try {
        call();
      } catch (const ContractError& error) { return error.what(); }
      return "";
    };
    EXPECT_THAT(refused([&] { (void)store.open(2); }), HasSubstr("there are 2 inputs"));
    EXPECT_THAT(refused([&] { store.save(0); }), HasSubstr("inputs 0 is not on the device"));
    EXPECT_THAT(refused([&] { store.close(0); }), HasSubstr("inputs 0 is not on the device"));
    EXPECT_THAT(refused([&] { (void)store.read(0); }), HasSubstr("inputs 0 was never saved"));
    EXPECT_THAT(refused([&] { store.fetch(0); }), HasSubstr("inputs 0 was never saved"));
    (void)store.open(0);
    EXPECT_THAT(refused([&] { (void)store.open(0); }), HasSubstr("already open"));
    EXPECT_THAT(refused([&] { (void)store.open(1); }), HasSubstr("inputs 0"));  // the only slot
    store.save(0);
    EXPECT_THAT(refused([&] { store.save(0); }), HasSubstr("already saved"));
    store.close(0);
    // Closing without a save discards the data, including earlier saves.
    (void)store.open(0);
    store.close(0);
    EXPECT_THAT(refused([&] { (void)store.read(0); }), HasSubstr("was never saved"));
  });
}

}  // namespace
}  // namespace tessera::activation_store_test
