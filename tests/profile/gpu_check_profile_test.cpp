// A machine profile from the figures of scripts/gpu_check.sh: what each figure becomes, and the
// messages about missing ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tessera/base/error.hpp"
#include "tessera/profile/machine_profile.hpp"

namespace tessera::gpu_check_profile_test {
namespace {

using Json = nlohmann::ordered_json;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Json figure(const std::string& name, const std::string& shape, double value,
            const std::string& unit) {
  return {{"name", name}, {"shape", shape}, {"value", value},
          {"unit", unit}, {"bar", nullptr}, {"verdict", "measured"}};
}

/// A document with every kernel figure: products at 400 TFLOP/s except one at 500, memory at 2000.
Json document() {
  const std::string rows = "64 tokens in sequences of 8, hidden 16";
  Json figures = Json::array();
  for (const char* weight : {"c_attn", "c_proj", "c_fc", "mlp.c_proj", "wte"}) {
    for (const char* pass : {"forward", "dx", "dW"}) {
      figures.push_back(figure(std::string{weight} + ' ' + pass, "64 x 48 x 16", 400, "TFLOP/s"));
    }
  }
  figures[0]["value"] = 500;
  for (const char* pass : {"forward", "backward"}) {
    figures.push_back(figure(std::string{"attention "} + pass + ", bf16", rows, 200, "TFLOP/s"));
  }
  for (const char* name : {"cast fp32 to bf16", "cast bf16 to fp32", "squared norm, bf16",
                           "squared norm, fp32", "GELU forward, bf16", "GELU backward, bf16",
                           "layer norm forward, bf16", "layer norm backward, bf16"}) {
    figures.push_back(figure(name, rows, 2000, "GB/s"));
  }
  figures.push_back(figure("cross entropy, bf16", rows + ", vocab 96", 2000, "GB/s"));
  figures.push_back(figure("AdamW, fp32 gradients", "1000 parameters", 2700, "GB/s"));
  figures.push_back(figure("AdamW, fp32 gradients / device copy", "1000 parameters", 0.9, "ratio"));
  return {{"format", "tessera gpu_check"},
          {"version", 1},
          {"parts",
           {{{"name", "kernels"},
             {"commit", "abc"},
             {"machine", {{"device", "a card, 80 GiB"}}},
             {"figures", figures}}}}};
}

void add_links(Json& json) {
  Json figures = Json::array();
  const auto add = [&](const char* name, double bandwidth, double latency) {
    const auto both = [&](const char* ranks, const char* bytes, double gigabytes, double micros) {
      const std::string shape = std::string{ranks} + " ranks, " + bytes + " bytes";
      figures.push_back(figure(std::string{name} + ", bus bandwidth", shape, gigabytes, "GB/s"));
      figures.push_back(figure(std::string{name} + ", a call", shape, micros, "us"));
    };
    both("8", "65536", 1, latency);
    both("8", "268435456", bandwidth, 999);
    both("2", "268435456", 77, 3);  // fewer ranks: not the whole machine
  };
  add("all_gather", 350, 17);
  add("reduce_scatter", 340, 17);
  add("all_reduce", 360, 24);
  json["parts"].push_back(
      {{"name", "multi"}, {"commit", "abc"}, {"machine", Json::object()}, {"figures", figures}});
}

MeasuredDevice measured(const Json& json) {
  return profile_of_gpu_check(json.dump());
}

TEST(GpuCheckProfile, TakesTheRatesOfKernels) {
  const MachineProfile profile = measured(document()).profile;
  EXPECT_EQ(profile.name, "a card, 80 GiB");
  EXPECT_DOUBLE_EQ(profile.flops_per_second.at(DType::bf16), 500e12);
  EXPECT_DOUBLE_EQ(profile.bytes_per_second, 3000e9);
  const auto seconds = [&](const char* name, DType dtype, double flops, double bytes,
                           std::array<std::int64_t, 3> sizes) {
    return kernel_seconds({name, dtype, flops, bytes, sizes}, profile).alone;
  };
  const double flops = 2.0 * 64 * 48 * 16;
  const double bytes = 2.0 * (64 * 16 + 16 * 48 + 64 * 48);
  EXPECT_NEAR(seconds("matmul_nn_bias_gelu", DType::bf16, flops, bytes, {64, 48, 16}),
              flops / 500e12, 1e-15)
      << "a variant of what was measured";
  EXPECT_NEAR(seconds("layer_norm_backward", DType::bf16, 14 * 1024, 8 * 1024, {64, 16, 0}),
              8 * 1024 / 2000e9, 1e-15);
  EXPECT_NEAR(seconds("adamw", DType::fp32, 16e3, 28e3, {1000, 0, 0}), 28e3 / 2700e9, 1e-15);
  EXPECT_NEAR(seconds("add", DType::bf16, 1, 6e3, {1000, 0, 0}), 2e-9, 1e-15) << "as a copy";
  EXPECT_NEAR(seconds("attention_forward", DType::bf16, 2 * 1024 * 9, 4 * 2048, {2, 8, 64}),
              2 * 1024 * 9 / 200e12, 1e-15);
}

TEST(GpuCheckProfile, SaysWhatWasNotMeasuredAndRefusesWhatNeedsIt) {
  const MeasuredDevice device = measured(document());
  EXPECT_THAT(device.not_measured,
              ElementsAre(AllOf(HasSubstr("launch"), HasSubstr("gpu_check.sh kernels")),
                          AllOf(HasSubstr("copies"), HasSubstr("gpu_check.sh kernels")),
                          AllOf(HasSubstr("links"), HasSubstr("gpu_check.sh multi")),
                          HasSubstr("fp32 and fp16")));
  EXPECT_DOUBLE_EQ(device.profile.kernel_seconds, 0);
  try {
    (void)collective_seconds({"all_gather", 8}, {0, 1}, device.profile);
    FAIL() << "no link was measured";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("scripts/gpu_check.sh multi"));
  }
  // It survives a round trip through its document.
  EXPECT_EQ(machine_profile_json(parse_machine_profile(machine_profile_json(device.profile))),
            machine_profile_json(device.profile));
}

TEST(GpuCheckProfile, TakesLinksLaunchesAndCopies) {
  Json json = document();
  add_links(json);
  Json& figures = json["parts"][0]["figures"];
  figures.push_back(figure("launch of a kernel, host", "", 3, "us"));
  figures.push_back(figure("launch of a kernel, device", "", 1.5, "us"));
  figures.push_back(figure("copies from the host", "", 52, "GB/s"));
  figures.push_back(figure("copies from and to the host at once, each", "", 45, "GB/s"));
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

TEST(GpuCheckProfile, NamesWhatIsMissingAndThePartThatMeasuresIt) {
  const auto without = [](const std::vector<std::string>& names) {
    return [names](Json& json) {
      Json& figures = json["parts"][0]["figures"];
      for (std::size_t i = figures.size(); i-- > 0;) {
        for (const std::string& name : names) {
          if (figures[i]["name"] == name) {
            figures.erase(i);
            break;
          }
        }
      }
    };
  };
  EXPECT_EQ(refusal([](Json&) {}), "nothing");
  EXPECT_THAT(refusal(without({"c_fc dW", "attention backward, bf16"})),
              AllOf(HasSubstr("have no c_fc dW (TFLOP/s), attention backward, bf16 (TFLOP/s)"),
                    HasSubstr("`scripts/gpu_check.sh kernels`"), Not(HasSubstr("c_attn"))));
  EXPECT_THAT(refusal([](Json& j) { j["parts"] = Json::array(); }), HasSubstr("c_attn forward"));
  EXPECT_THAT(refusal([](Json& j) { j["version"] = 2; }), HasSubstr("of version 2"));
  EXPECT_THAT(refusal([](Json& j) { j = {{"tessera_machine", 1}}; }),
              HasSubstr("do not come from scripts/gpu_check.sh"));
  EXPECT_THAT(refusal([](Json& j) { j["parts"][0].erase("figures"); }),
              HasSubstr("do not come from scripts/gpu_check.sh"));
  const Json row = document()["parts"][0]["figures"][0];
  EXPECT_THAT(refusal([](Json& j) { j["parts"][0]["figures"][0]["value"] = 0; }),
              AllOf(HasSubstr("as '" + row["name"].get<std::string>() + "' of shape '" +
                              row["shape"].get<std::string>() +
                              "' in part kernels; it must be "
                              "above 0"),
                    HasSubstr("`scripts/gpu_check.sh kernels`")));
  EXPECT_THAT(refusal([](Json& j) { j["parts"][0]["figures"][0]["shape"] = "large"; }),
              HasSubstr("'large'"));
}

}  // namespace
}  // namespace tessera::gpu_check_profile_test
