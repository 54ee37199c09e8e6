// Times of kernels and collectives on a machine against values worked out by hand; the profile's
// document.
#include "tessera/profile/machine_profile.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "profile/hand_machine.hpp"
#include "tessera/base/error.hpp"

namespace tessera::machine_profile_test {
namespace {

using Json = nlohmann::ordered_json;
using test::plain_machine;
using testing::HasSubstr;

std::vector<int> ranks(int count, int stride = 1) {
  std::vector<int> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) { all[static_cast<std::size_t>(i)] = i * stride; }
  return all;
}

TEST(KernelSeconds, AreTheLongerOfComputingAndMoving) {
  MachineProfile machine = plain_machine();
  machine.kernel_seconds = 0.5;
  const auto seconds = [&](double flops, double bytes, DType dtype) {
    return kernel_seconds({.name = "k", .dtype = dtype, .flops = flops, .bytes = bytes}, machine);
  };
  EXPECT_DOUBLE_EQ(seconds(6, 2, DType::fp32).alone, 6.5);
  EXPECT_DOUBLE_EQ(seconds(6, 2, DType::bf16).alone, 3.5);
  EXPECT_DOUBLE_EQ(seconds(2, 6, DType::fp32).alone, 6.5);
  EXPECT_FALSE(seconds(6, 2, DType::fp32).memory);
  EXPECT_TRUE(seconds(2, 6, DType::fp32).memory);
  EXPECT_THROW((void)seconds(1, 1, DType::fp16), ConfigError);
}

TEST(KernelSeconds, UseTheSampleOfTheSameSizesOrInterpolate) {
  MachineProfile machine = plain_machine();
  const auto product = [](std::int64_t m) {
    return trace::KernelWork{
        .name = "product", .flops = static_cast<double>(m), .sizes = {m, 1, 1}};
  };
  machine.kernels = {{product(4), 8.0, 12.0}, {product(16), 128.0, 0.0}};
  EXPECT_DOUBLE_EQ(kernel_seconds(product(4), machine).alone, 8.0);
  EXPECT_DOUBLE_EQ(kernel_seconds(product(4), machine).shared, 12.0);
  EXPECT_DOUBLE_EQ(kernel_seconds(product(16), machine).shared, 128.0);
  // Halfway between two shapes that take 2 and 8 times the roofline's time: 4 times.
  EXPECT_NEAR(kernel_seconds(product(8), machine).alone, 32.0, 1e-9);
  EXPECT_DOUBLE_EQ(kernel_seconds({.name = "other", .flops = 4}, machine).alone, 4.0);
}

TEST(KernelSeconds, CopiesToTheHostGoOverItsLink) {
  MachineProfile machine = plain_machine();
  machine.host_bytes_per_second = 0.25;
  EXPECT_DOUBLE_EQ(kernel_seconds({.name = "copy_in", .bytes = 2}, machine).alone, 8.0);
  EXPECT_DOUBLE_EQ(kernel_seconds({.name = "copy", .bytes = 2}, machine).alone, 2.0);
}

TEST(CollectiveSeconds, OfARingAreItsStepsAndItsBytes) {
  MachineProfile machine = plain_machine();
  machine.protocols = {{"plain", 1.0, 10.0}};
  machine.levels = {{"node", 4, 2.0, {0.5}}, {"cluster", 0, 1.0, {3.0}}};
  const auto in_node = collective_seconds({"all_gather", 80}, ranks(4), machine);
  EXPECT_DOUBLE_EQ(in_node.latency, 10 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(in_node.moving, 80 * 3.0 / 4 / 2);
  EXPECT_EQ(in_node.level, 0);
  // Two nodes: 7 steps, one of them between nodes; four links together are faster than one within
  // the node.
  const auto across = collective_seconds({"reduce_scatter", 80}, ranks(8), machine);
  EXPECT_DOUBLE_EQ(across.latency, 10 + 6 * 0.5 + 3);
  EXPECT_DOUBLE_EQ(across.moving, 80 * 7.0 / 8 / 2);
  // One of the five ranks is alone on its node: only one link.
  EXPECT_DOUBLE_EQ(collective_seconds({"all_gather", 80}, ranks(5), machine).moving, 80 * 4.0 / 5);
  EXPECT_EQ(across.level, 1);
  // One rank on each of three nodes: only its own link.
  const auto copies = collective_seconds({"all_gather", 90}, ranks(3, 4), machine);
  EXPECT_DOUBLE_EQ(copies.latency, 10 + 2 * 3.0);
  EXPECT_DOUBLE_EQ(copies.moving, 90 * 2.0 / 3);
  EXPECT_DOUBLE_EQ(collective_seconds({"all_gather", 90}, ranks(1), machine).latency, 0);
  EXPECT_DOUBLE_EQ(collective_seconds({"broadcast", 80}, ranks(4), machine).moving, 40);
}

TEST(CollectiveSeconds, OfAnAllReduceTakeTheTreeWhereItIsFaster) {
  MachineProfile machine = plain_machine();
  machine.levels = {{"node", 4, 1.0, {1.0}}, {"cluster", 0, 1.0, {1.0}}};
  const auto small = collective_seconds({"all_reduce", 1e-3}, ranks(64), machine);
  EXPECT_DOUBLE_EQ(small.latency, 2 * (3 + 4));  // 3 steps in the node, log2 of 16 nodes
  EXPECT_NEAR(small.moving, 2e-3 / 0.9, 1e-12);
  const auto large = collective_seconds({"all_reduce", 1e6}, ranks(64), machine);
  EXPECT_DOUBLE_EQ(large.latency, 2 * 63);
  EXPECT_DOUBLE_EQ(large.moving, 2e6 * 63 / 64);
}

TEST(CollectiveSeconds, TakeTheFastestProtocol) {
  MachineProfile machine = plain_machine();
  machine.protocols = {{"low latency", 0.25, 1.0}, {"simple", 1.0, 10.0}};
  machine.levels = {{"node", 0, 1.0, {0.0, 0.0}}};
  EXPECT_DOUBLE_EQ(collective_seconds({"all_gather", 2}, ranks(2), machine).latency, 1.0);
  EXPECT_DOUBLE_EQ(collective_seconds({"all_gather", 2}, ranks(2), machine).moving, 4.0);
  EXPECT_DOUBLE_EQ(collective_seconds({"all_gather", 20}, ranks(2), machine).latency, 10.0);
}

TEST(CollectiveSeconds, OfRanksWithSharedMemoryAreBarriersAndBytes) {
  MachineProfile machine = plain_machine();
  machine.way = CollectiveWay::direct;
  machine.reduce_bytes_per_second = 0.5;
  machine.protocols = {{"local", 1.0, 1.0}, {"unused", 1.0, 7.0}};  // only the first counts
  machine.levels = {{"machine", 0, 1.0, {0.25, 7.0}}};
  const auto gather = collective_seconds({"all_gather", 8}, ranks(4), machine);
  EXPECT_DOUBLE_EQ(gather.latency, 2 * (1 + 4 * 0.25));
  EXPECT_DOUBLE_EQ(gather.moving, 8);
  EXPECT_DOUBLE_EQ(collective_seconds({"reduce_scatter", 8}, ranks(4), machine).moving, 16);
  const auto all = collective_seconds({"all_reduce", 8}, ranks(4), machine);
  EXPECT_DOUBLE_EQ(all.latency, 3 * 2);
  EXPECT_DOUBLE_EQ(all.moving, 16 + 6);
}

TEST(CollectiveSeconds, BeyondTheLastLevelAreRefused) {
  MachineProfile machine = plain_machine();
  machine.levels.pop_back();
  EXPECT_NO_THROW((void)collective_seconds({"all_gather", 8}, ranks(4), machine));
  EXPECT_THROW((void)collective_seconds({"all_gather", 8}, ranks(5), machine), ConfigError);
}

TEST(CollectiveSeconds, AreNotShorterForMoreRanksLatencyOrBytes) {
  MachineProfile machine = plain_machine();
  machine.levels = {{"node", 4, 2.0, {0.1}}, {"cluster", 0, 1.0, {0.3}}};
  const auto seconds = [&](const char* name, double bytes, int count) {
    const auto s = collective_seconds({name, bytes}, ranks(count), machine);
    return s.latency + s.moving;
  };
  for (const char* name : {"all_gather", "reduce_scatter", "all_reduce"}) {
    for (int n = 2; n < 64; n *= 2) {
      EXPECT_LT(seconds(name, 10, n), seconds(name, 10, 2 * n)) << name << n;
      EXPECT_LT(seconds(name, 10, n), seconds(name, 11, n)) << name << n;
    }
  }
}

TEST(MachineProfileDocument, RoundTrips) {
  MachineProfile machine = plain_machine();
  machine.cores = 2;
  machine.way = CollectiveWay::direct;
  machine.reduce_bytes_per_second = 3;
  machine.enqueue_seconds = 1e-6;
  machine.kernels = {{{"matmul_nn", DType::bf16, 10, 20, {1, 2, 3}}, 0.5, 0.75}};
  const std::string json = machine_profile_json(machine);
  const MachineProfile again = parse_machine_profile(json);
  EXPECT_EQ(machine_profile_json(again), json);
  EXPECT_EQ(again.kernels.front().work, machine.kernels.front().work);
  EXPECT_EQ(again.levels.back().name, "cluster");
}

/// The error about the plain machine's document after `change`.
std::string refusal(const std::function<void(Json&)>& change) {
  Json json = Json::parse(machine_profile_json(plain_machine()));
  change(json);
  try {
    (void)parse_machine_profile(json.dump());
  } catch (const ConfigError& error) { return error.what(); }
  return "nothing";
}

TEST(MachineProfileDocument, IsRefusedWithTheReason) {
  EXPECT_EQ(refusal([](Json&) {}), "nothing");
  EXPECT_THAT(refusal([](Json& j) { j["tessera_machine"] = 2; }), HasSubstr("of version 2"));
  EXPECT_THAT(refusal([](Json& j) { j["colour"] = 1; }), HasSubstr("unknown key 'colour'"));
  EXPECT_THAT(refusal([](Json& j) { j.erase("bytes_per_second"); }),
              HasSubstr("no 'bytes_per_second'"));
  EXPECT_THAT(refusal([](Json& j) { j["cores"] = "two"; }), HasSubstr("the wrong type"));
  EXPECT_THAT(refusal([](Json& j) { j["bytes_per_second"] = -1; }), HasSubstr("above 0"));
  EXPECT_THAT(refusal([](Json& j) { j["levels"] = Json::array(); }), HasSubstr("no levels"));
  EXPECT_THAT(refusal([](Json& j) { j["levels"][1]["ranks"] = 6; }), HasSubstr("6 ranks"));
  const auto any_then_8 = [](Json& j) {
    j["levels"][0]["ranks"] = 0;
    j["levels"][1]["ranks"] = 8;
  };
  EXPECT_THAT(refusal(any_then_8), HasSubstr("8 ranks"));
  EXPECT_THAT(refusal([](Json& j) { j["cores"] = 0.5; }), HasSubstr("the wrong type"));
  EXPECT_THAT(refusal([](Json& j) { j["cores"] = std::int64_t{1} << 32; }),
              HasSubstr("the wrong type or size"));
  const auto with_sizes = [](const Json& sizes) {
    return refusal([&](Json& j) {
      j["kernels"] = Json::array({{{"kernel", "gelu"},
                                   {"dtype", "fp32"},
                                   {"sizes", sizes},
                                   {"flops", 1},
                                   {"bytes", 1},
                                   {"seconds", 1}}});
    });
  };
  EXPECT_EQ(with_sizes({1, 2, 3}), "nothing");
  EXPECT_THAT(with_sizes({1e300, 2, 3}), HasSubstr("the wrong type or size"));
  EXPECT_THAT(with_sizes({1, 2, 3, 4}), HasSubstr("the wrong type or size"));
  EXPECT_THAT(refusal([](Json& j) { j["bytes_per_second"] = true; }), HasSubstr("the wrong type"));
  EXPECT_THAT(refusal([](Json& j) { j["levels"][0]["step_seconds"] = Json::array(); }),
              HasSubstr("0 step_seconds"));
  EXPECT_THAT(refusal([](Json& j) { j["collectives"] = "magic"; }), HasSubstr("'magic'"));
  EXPECT_THROW((void)parse_machine_profile("{"), ConfigError);
}

}  // namespace
}  // namespace tessera::machine_profile_test
