// Every line of a run's device ledger agrees with the device.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "cuda_cli/cuda_command.hpp"

namespace tessera::test::ledger_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMiB = 1 << 20;

class CudaLedger : public CudaCommand {
 protected:
  /// The ranks of one device, if `ranks` ranks are assigned to the devices in turn.
  [[nodiscard]] static std::vector<int> ranks_on(int device, int ranks) {
    std::vector<int> all;
    const auto devices = static_cast<int>(machine().devices.size());
    for (int rank = device; rank < ranks; rank += devices) { all.push_back(rank); }
    return all;
  }
  /// The ledgers of every device under every strategy. Checks their sums.
  [[nodiscard]] std::vector<Json> ledgers(const std::string& ranks) {
    std::vector<Json> all;
    const Json json = compared(ranks, {"--steps", "3", "--device", "cuda"});
    for (const Json& strategy : json.at("strategies")) {
      for (const Json& ledger : strategy.at("devices")) {
        SCOPED_TRACE(ledger.dump());
        std::int64_t sum = 0;
        for (const Json& bytes : ledger.at("rows")) { sum += bytes.get<std::int64_t>(); }
        EXPECT_EQ(sum, ledger.at("used_bytes").get<std::int64_t>());
        const auto unattributed = ledger.at("rows").at("unattributed").get<std::int64_t>();
        EXPECT_LT(std::abs(unattributed), 64 * kMiB);
        EXPECT_GE(ledger.at("rows").at("workspace"), 32 * kMiB);
        all.push_back(ledger);
      }
    }
    EXPECT_FALSE(all.empty());
    return all;
  }
};

TEST_F(CudaLedger, RowsSumToTheDevicesFigure) {
  for (const Json& ledger : ledgers("2")) {
    const int first = ledger.at("ranks").at(0);
    EXPECT_EQ(ledger.at("ranks"), Json(ranks_on(first, 2)));
    EXPECT_EQ(ledger.at("device"), "cuda:" + std::to_string(first));
    EXPECT_THAT(ledger.at("id").get<std::string>(), HasSubstr("GPU-"));
  }
}

TEST_F(CudaLedger, SeparatesContextFromOtherProcessesAsFarAsNvmlDoes) {
  if (!machine_is_emulated()) { GTEST_SKIP() << "a real device has the NVML that it has"; }
  const Variable context{"TESSERA_EMULATED_CUDA_CONTEXT_BYTES", std::to_string(300 * kMiB)};
  const Variable others{"TESSERA_EMULATED_CUDA_OTHERS_BYTES", std::to_string(100 * kMiB)};
  const std::vector<std::pair<std::string, std::int64_t>> counted = {
      {"everybody", 400 * kMiB}, {"newcomers", 300 * kMiB}, {"process", 300 * kMiB}};
  for (std::size_t level = 0; level < counted.size(); ++level) {
    const Variable nvml{"TESSERA_EMULATED_CUDA_NVML", std::to_string(level)};
    for (const Json& ledger : ledgers("2")) {
      SCOPED_TRACE(level);
      EXPECT_EQ(ledger.at("counted"), counted[level].first);
      EXPECT_EQ(ledger.at("rows").at("context"), counted[level].second);
      EXPECT_EQ(ledger.at("ranks"), Json({0, 1}));
    }
  }
}

TEST_F(CudaLedger, HasOneLedgerForEachDevice) {
  if (!machine_is_emulated()) { GTEST_SKIP() << "the devices are those that there are"; }
  const Variable devices{"TESSERA_EMULATED_CUDA_DEVICES", "2"};
  const std::vector<Json> all = ledgers("3");
  ASSERT_EQ(all.size(), 10U);
  EXPECT_EQ(all[0].at("ranks"), Json({0, 2}));
  EXPECT_EQ(all[1].at("ranks"), Json({1}));
  EXPECT_NE(all[0].at("id"), all[1].at("id"));
}

TEST_F(CudaLedger, TrainPrintsIt) {
  const Outcome outcome = tessera(small("train", {"--steps", "2", "--device", "cuda"}));
  const std::vector<int> ranks = ranks_on(0, 3);
  EXPECT_THAT(outcome.out,
              HasSubstr(fmt::format("cuda:0, of rank{} {}\n", ranks.size() > 1 ? "s" : "",
                                    fmt::join(ranks, ", "))));
  EXPECT_THAT(outcome.out, HasSubstr("\nunattributed "));
}

}  // namespace
}  // namespace tessera::test::ledger_test
