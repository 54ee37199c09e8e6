#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cuda/support.hpp"
#include "support/variable.hpp"
#include "tessera/device/device.hpp"

namespace tessera::test {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

/// Runs the command on CUDA devices. Skips if there are none.
class CudaCommand : public CommandTest {
 protected:
  void SetUp() override {
    if (const std::string reason = tessera::test::no_cuda(); !reason.empty()) {
      GTEST_SKIP() << reason;
    }
    ASSERT_FALSE(machine().devices.empty()) << machine().problem;
  }
  [[nodiscard]] static const CudaMachine& machine() {
    static const CudaMachine machine = cuda_machine();
    return machine;
  }
  [[nodiscard]] static bool machine_is_emulated() {
    return machine().module.find("emulated") != std::string::npos;
  }

  /// Like small(), on `ranks` ranks.
  [[nodiscard]] Words on_ranks(const std::string& ranks, const std::string& command,
                               const Words& more) const {
    Words all = small(command, more);
    *(std::find(all.begin(), all.end(), "--ranks") + 1) = ranks;
    return all;
  }
  /// Runs `compare`, expects success, and returns its JSON.
  [[nodiscard]] Json compared(const std::string& ranks, const Words& more) {
    Words all = on_ranks(ranks, "compare", {"--json", path("out.json")});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    return outcome.status == 0 ? Json::parse(read_file(path("out.json"))) : Json{};
  }
  /// Trains on one rank, expects success, and returns the losses.
  [[nodiscard]] std::vector<double> losses(const Words& more) {
    Words all = on_ranks("1", "train", {"--log", path("run.jsonl")});
    all.insert(all.end(), more.begin(), more.end());
    const Outcome outcome = tessera(all);
    EXPECT_EQ(outcome.status, 0) << outcome.err;
    std::vector<double> each;
    for (const Json& line : log("run.jsonl")) { each.push_back(line.at("loss")); }
    return each;
  }
  void refused(const Words& arguments, int status, const std::string& part) {
    const Outcome outcome = tessera(arguments);
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_EQ(outcome.out, "") << "something was started before the refusal";
    EXPECT_THAT(outcome.err, ::testing::HasSubstr(part));
  }
};

}  // namespace tessera::test
