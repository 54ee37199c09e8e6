// Ranks compare lists of lines and find the first difference.
#include "engine/model/agreement.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/refusal.hpp"
#include "tessera/base/error.hpp"

namespace tessera::engine::agreement_test {
namespace {

using ::testing::HasSubstr;

/// Rank 0's message if rank 2's lines differ from `at` on, `count` of `most` in total.
std::string difference(std::size_t most, std::size_t at, std::size_t count) {
  return test::refusal<ContractError>(3, [&](World& world) {
    const bool other = world.rank() == 2;
    std::size_t asked = 0;
    const auto line = [&](std::size_t number) {
      ++asked;
      return fmt::format("{}{}", number, other && number >= at ? "!" : "");
    };
    const std::size_t own = other ? count : most;
    try {
      require_agreement(world, "the list", {own, line});
    } catch (const ContractError&) {
      EXPECT_LE(asked, 2 * most + 1) << "lines are made again for every comparison";
      throw;
    }
  });
}

TEST(Agreement, NamesTheFirstLineThatDiffers) {
  for (std::size_t most = 1; most <= 9; ++most) {
    for (std::size_t at = 0; at < most; ++at) {
      EXPECT_THAT(difference(most, at, most),
                  HasSubstr(fmt::format("the list differs between ranks: entry {} is '{}' on rank "
                                        "0 and '{}!' on rank 2",
                                        at + 1, at, at)));
      EXPECT_THAT(
          difference(most, at, at),
          HasSubstr(fmt::format("entry {} is '{}' on rank 0 and nothing on rank 2", at + 1, at)));
    }
    EXPECT_EQ(difference(most, most, most), "nothing");
  }
}

}  // namespace
}  // namespace tessera::engine::agreement_test
