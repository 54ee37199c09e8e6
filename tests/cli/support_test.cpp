// The support table: the page is what the command prints.
#include <gmock/gmock.h>

#include "cli/command.hpp"
#include "support/places.hpp"

namespace tessera::test::support_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class Support : public CommandTest {};

TEST_F(Support, ThePageMatchesTheCommandsOutput) {
  const Outcome outcome = tessera({"doctor", "--support"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(outcome.out, read_file(std::filesystem::path{test::kSourceDir} / "docs/support.md"))
      << "write it again: tessera doctor --support > docs/support.md";
}

TEST_F(Support, ACellMatchesTheAnswerOfARun) {
  const std::string table = tessera({"doctor", "--support"}).out;
  const Outcome run = tessera(small("train", {"--steps", "1", "--strategy", "zero3", "--reshard",
                                              "after-backward", "--reduce-dtype", "bf16"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_THAT(table, ContainsRegex("\n[|] reshard after backward ([|] no [(][0-9]+[)] ){4}"
                                   "[|] yes [|] yes [|]\n"));
  EXPECT_THAT(table, HasSubstr("\n| compute bf16, remainders of master weights | yes |"));
  EXPECT_THAT(table, HasSubstr("\n| compute fp16, remainders of master weights | no ("));
  EXPECT_NE(table.find("`reshard` has no effect under ddp"), std::string::npos);
  const Outcome refused = tessera(small("train", {"--comm", "nccl"}));
  EXPECT_EQ(refused.status, 2);
  const std::string why = refused.err.substr(refused.err.find("--comm"));
  EXPECT_NE(table.find(why), std::string::npos) << why;
}

}  // namespace
}  // namespace tessera::test::support_test
