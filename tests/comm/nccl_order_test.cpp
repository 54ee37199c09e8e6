#include "comm/nccl_order.hpp"

#include <gmock/gmock.h>

#include "tessera/base/error.hpp"

namespace tessera::test::nccl_order_test {
namespace {

using ::testing::HasSubstr;

std::string refusal(const comm::NcclChoice& choice) {
  try {
    return "none: " + comm::fixed_nccl_algorithms(choice);
  } catch (const ConfigError& error) { return error.what(); }
}

TEST(NcclOrder, IsTheRingsUnlessTheUserChooses) {
  EXPECT_EQ(comm::fixed_nccl_algorithms({}), "Ring");
  EXPECT_EQ(comm::fixed_nccl_algorithms({{}, "none"}), "Ring");
}

TEST(NcclOrder, AChoiceOfRingsAndTreesStays) {
  for (const char* name :
       {"Ring", "ring", "TREE", "Ring,Tree", "allreduce:tree,ring;reduce:ring"}) {
    EXPECT_EQ(comm::fixed_nccl_algorithms({name, {}}), name);
  }
}

TEST(NcclOrder, SettingsThatLeaveItOpenAreRefusedByName) {
  for (const char* name :
       {"", "NVLS", "NVLSTree", "CollnetDirect", "PAT", "^NVLS", "Ring,NVLS", "Ring,", "ring:tree",
        "allreduce:", "allreduce:ring;reducescatter:nvls"}) {
    EXPECT_THAT(refusal({name, {}}), HasSubstr("NCCL_ALGO=" + std::string{name} + " leaves"));
  }
  EXPECT_THAT(refusal({"Ring", "libmine.so"}), HasSubstr("NCCL_TUNER_PLUGIN=libmine.so"));
}

}  // namespace
}  // namespace tessera::test::nccl_order_test
