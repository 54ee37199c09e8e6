// A machine profile from the samples of a device's benchmark: what each sample becomes, and the
// messages about missing and impossible ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tessera/base/error.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera::device_samples_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json with_profile(const Json& profile) {
  return {{"name", "a figure"}, {"value", 1}, {"unit", "GB/s"}, {"profile", profile}};
}

Json kernel(const char* name, const char* dtype, std::array<std::int64_t, 3> sizes, double flops,
            double bytes, double seconds) {
  return with_profile({{"kernels",
                        {{{"kernel", name},
                          {"dtype", dtype},
                          {"sizes", sizes},
                          {"flops", flops},
                          {"bytes", bytes},
                          {"seconds", seconds}}}}});
}

/// A document of the benchmark with every kernel: products at 400 TFLOP/s but one at 500, attention
/// at 200, and the others at 2000 GB/s.
Json document() {
  Json samples = Json::array();
  double rate = 500e12;
  for (const char* name : {"matmul_nn", "matmul_nt", "matmul_tn"}) {
    const double flops = 2.0 * 64 * 48 * 16;
    samples.push_back(kernel(name, "bf16", {64, 48, 16}, flops, 9728, flops / rate));
    rate = 400e12;
  }
  for (const char* name : {"attention_forward", "attention_backward"}) {
    samples.push_back(kernel(name, "bf16", {2, 8, 64}, 18432, 8192, 18432 / 200e12));
  }
  const auto memory_bound = [&](const char* name, const char* dtype) {
    samples.push_back(kernel(name, dtype, {1024, 0, 0}, 1024, 8192, 8192 / 2000e9));
  };
  for (const char* name : {"cast", "squared_norm"}) {
    memory_bound(name, "bf16");
    memory_bound(name, "fp32");
  }
  for (const char* name : {"gelu_forward", "gelu_backward", "layer_norm_forward",
                           "layer_norm_backward", "cross_entropy"}) {
    memory_bound(name, "bf16");
  }
  samples.push_back(kernel("adamw", "fp32", {1000, 0, 0}, 16e3, 28e3, 28e3 / 2700e9));
  samples.back()["profile"]["bytes_per_second"] = 3000e9;
  return {{"tessera_samples", 1}, {"samples", samples}};
}

void add(Json& json, const Json& profile) {
  json["samples"].push_back(with_profile(profile));
}

void add_links(Json& json) {
  const auto of = [&](const char* name, double bandwidth, double latency) {
    const auto link = [&](int ranks, double bytes, double rate, double seconds) {
      add(json, {{"links",
                  {{{"collective", name},
                    {"ranks", ranks},
                    {"bytes", bytes},
                    {"bus_bytes_per_second", rate},
                    {"seconds", seconds}}}}});
    };
    link(8, 268'435'456, bandwidth, 999e-6);
    link(8, 65'536, 1e9, latency);
    link(2, 268'435'456, 77e9, 3e-6);  // fewer ranks: not the whole machine
  };
  of("all_gather", 350e9, 17e-6);
  of("reduce_scatter", 340e9, 17e-6);
  of("all_reduce", 360e9, 24e-6);
}

MeasuredDevice measured(const Json& json) {
  return profile_of_samples(json.dump());
}

TEST(DeviceSamples, TakesTheTimesOfKernels) {
  const MachineProfile profile = measured(document()).profile;
  EXPECT_DOUBLE_EQ(profile.flops_per_second.at(DType::bf16), 500e12);
  EXPECT_DOUBLE_EQ(profile.bytes_per_second, 3000e9);
  EXPECT_DOUBLE_EQ(profile.vector_flops_per_second, 16.0 / 28 * 2700e9) << "AdamW's";
  const auto seconds = [&](const char* name, DType dtype, double flops, double bytes,
                           std::array<std::int64_t, 3> sizes) {
    return kernel_seconds({name, dtype, flops, bytes, sizes}, profile).alone;
  };
  const double flops = 2.0 * 64 * 48 * 16;
  EXPECT_NEAR(seconds("matmul_nn_bias_gelu", DType::bf16, flops, 9728, {64, 48, 16}),
              flops / 500e12, 1e-15)
      << "a variant of what was measured";
  EXPECT_NEAR(seconds("adamw", DType::fp32, 16e3, 28e3, {1000, 0, 0}), 28e3 / 2700e9, 1e-15);
  EXPECT_NEAR(seconds("add", DType::bf16, 1, 6e3, {1000, 0, 0}), 2e-9, 1e-15) << "as a copy";
}

TEST(DeviceSamples, AreThoseOfAllPartsOfACheck) {
  const Json whole = document();
  Json kernels = {{"name", "kernels"},
                  {"commit", "abc"},
                  {"machine", {{"device", "a card"}}},
                  {"samples", whole["samples"]}};
  Json multi = {{"name", "multi"}, {"samples", Json::array()}};
  add_links(multi);
  const Json parts = {kernels, {{"name", "train"}}, multi};
  const MachineProfile profile = measured({{"parts", parts}}).profile;
  EXPECT_EQ(profile.name, "a card");
  EXPECT_EQ(profile.source, "measured at commit abc");
  EXPECT_EQ(profile.kernels.size(), whole["samples"].size());
  EXPECT_EQ(profile.levels.size(), 1U);
}

TEST(DeviceSamples, SaysWhatWasNotMeasuredAndRefusesWhatNeedsIt) {
  const MeasuredDevice device = measured(document());
  EXPECT_THAT(device.not_measured,
              ElementsAre(AllOf(HasSubstr("launch"), HasSubstr("gpu-check.md, part kernels")),
                          AllOf(HasSubstr("copies"), HasSubstr("gpu-check.md, part kernels")),
                          AllOf(HasSubstr("links"), HasSubstr("gpu-check.md, part multi")),
                          HasSubstr("fp32 and fp16")));
  EXPECT_DOUBLE_EQ(device.profile.kernel_seconds, 0);
  try {
    (void)collective_seconds({"all_gather", 8}, {0, 1}, device.profile);
    FAIL() << "no link was measured";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("gpu-check.md, part multi"));
  }
  // It survives a round trip through its document.
  EXPECT_EQ(machine_profile_json(parse_machine_profile(machine_profile_json(device.profile))),
            machine_profile_json(device.profile));
}

TEST(DeviceSamples, TakesLinksLaunchesAndCopies) {
  Json json = document();
  add_links(json);
  add(json, {{"enqueue_seconds", 3e-6}});
  add(json, {{"kernel_seconds", 1.5e-6}});
  add(json, {{"host_bytes_per_second", 45e9}});
  const MeasuredDevice device = measured(json);
  const MachineProfile& profile = device.profile;
  EXPECT_EQ(device.not_measured.size(), 1U);
  EXPECT_DOUBLE_EQ(profile.enqueue_seconds, 3e-6);
  EXPECT_DOUBLE_EQ(profile.kernel_seconds, 1.5e-6);
  EXPECT_DOUBLE_EQ(profile.host_bytes_per_second, 45e9);
  ASSERT_EQ(profile.levels.size(), 1U);
  EXPECT_EQ(profile.levels[0].ranks, 8);
  EXPECT_DOUBLE_EQ(profile.levels[0].bytes_per_second, 350e9);
  // 17 us are a start of 10 and 7 steps of 1; 24 us are the same start and twice the steps.
  EXPECT_NEAR(profile.levels[0].step_seconds.at(0), 1e-6, 1e-12);
  EXPECT_NEAR(profile.protocols.at(0).start_seconds, 10e-6, 1e-12);
}

std::string refusal(const std::function<void(Json&)>& change) {
  Json json = document();
  change(json);
  try {
    (void)measured(json);
  } catch (const ConfigError& error) { return error.what(); }
  return "nothing";
}

TEST(DeviceSamples, NamesTheKernelsThatAreMissing) {
  EXPECT_EQ(refusal([](Json&) {}), "nothing");
  EXPECT_THAT(refusal([](Json& j) {
                j["samples"].erase(4);
                j["samples"].erase(2);
              }),
              AllOf(HasSubstr("have no matmul_tn in bf16, attention_backward in bf16; measure"),
                    HasSubstr("gpu-check.md, part kernels"), Not(HasSubstr("cast"))));
  EXPECT_THAT(refusal([](Json& j) { j["samples"] = Json::array(); }), HasSubstr("no matmul_nn"));
  EXPECT_THAT(refusal([](Json& j) { j = {{"parts", Json::array()}}; }), HasSubstr("no matmul_nn"));
}

TEST(DeviceSamples, AreRefusedFromOtherDocuments) {
  const auto* const other = "are in no document that a check of a GPU or its benchmark wrote";
  EXPECT_THAT(refusal([](Json& j) { j = {{"tessera_machine", 1}}; }), HasSubstr(other));
  EXPECT_THAT(refusal([](Json& j) { j = 1; }), HasSubstr(other));
  EXPECT_THAT(refusal([](Json& j) { j.erase("samples"); }), HasSubstr(other));
  EXPECT_THAT(refusal([](Json& j) { j["samples"][0]["profile"]["links"] = {1}; }),
              HasSubstr(other));
  EXPECT_THAT(refusal([](Json& j) { j["tessera_samples"] = 2; }), HasSubstr("of version 2"));
}

TEST(DeviceSamples, AreRefusedWithImpossibleNumbers) {
  const auto first = [](const char* key, const Json& value) {
    return refusal([&](Json& j) { j["samples"][0]["profile"]["kernels"][0][key] = value; });
  };
  EXPECT_THAT(first("seconds", 0), HasSubstr("has 0 as seconds of kernel matmul_nn"));
  EXPECT_THAT(first("sizes", {1, 2}), HasSubstr("'sizes'"));
  EXPECT_THAT(first("dtype", "fp7"), HasSubstr("fp7"));
  EXPECT_THAT(first("other", 1), HasSubstr("'other'"));
  EXPECT_THAT(refusal([](Json& j) { add(j, {{"bytes_per_second", -1}}); }),
              HasSubstr("bytes_per_second"));
  EXPECT_THAT(refusal([](Json& j) {
                add_links(j);
                j["samples"].back()["profile"]["links"][0]["ranks"] = 1;
              }),
              HasSubstr("no ranks can have made"));
  Json deep = 1;
  for (int i = 0; i < 10; ++i) { deep = Json::array({deep}); }
  EXPECT_THAT(first("sizes", deep), HasSubstr("nested too deeply"));
}

}  // namespace
}  // namespace tessera::device_samples_test
