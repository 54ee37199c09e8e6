#include "comm/control/control_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/error.hpp"

namespace tessera::control_text_test {
namespace {

/// The job's rank: ten times the rank here.
std::string tenfold(int rank) {
  return "rank " + std::to_string(10 * rank);
}

std::string refusal(const std::vector<std::string>& sealed) {
  try {
    (void)comm::unseal(sealed, tenfold);
  } catch (const ContractError& error) { return error.what(); }
  return "none";
}

TEST(ControlText, ReturnsTheTextsOfOneCallUnchanged) {
  const std::vector<std::string> texts{"", "a", std::string("\0\xFF ", 3),
                                       std::string(70'000, 'x')};
  for (const comm::TextCall call :
       {comm::TextCall::exchange, comm::TextCall::split, comm::TextCall::number}) {
    std::vector<std::string> sealed;
    for (const std::string& text : texts) { sealed.push_back(comm::seal(call, text, "shard")); }
    EXPECT_EQ(comm::unseal(sealed, tenfold), texts);
  }
}

TEST(ControlText, TheFirstRankThatMakesAnotherCallIsNamedWithBothCalls) {
  const std::string text = comm::seal(comm::TextCall::exchange, "1");
  const std::string split = comm::seal(comm::TextCall::split, "1", "shard");
  const std::string number = comm::seal(comm::TextCall::number, "1", "replica");
  constexpr const char* kEnd = "; every rank must make the same collective calls in the same order";
  EXPECT_EQ(refusal({text, text, split, number}),
            std::string{"rank 20 splits off \"shard\" where rank 0 exchanges texts"} + kEnd);
  EXPECT_EQ(
      refusal({number, text}),
      std::string{"rank 10 exchanges texts where rank 0 makes a communicator for \"replica\""} +
          kEnd);
  EXPECT_EQ(refusal({split, number}),
            std::string{"rank 10 makes a communicator for \"replica\" where rank 0 splits off "
                        "\"shard\""} +
                kEnd);
}

}  // namespace
}  // namespace tessera::control_text_test
