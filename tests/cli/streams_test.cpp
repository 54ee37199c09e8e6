// The command with standard streams that are closed or cannot be written.
#include <utility>

#include "cli/command.hpp"

namespace tessera::test::streams_test {
namespace {

using Words = std::vector<std::string>;

class Streams : public CommandTest {
 protected:
  /// A training that skips all steps after the first, with a message on standard error for each.
  [[nodiscard]] Words skipping(const std::string& name) const {
    return small("train", {"--steps", "3", "--lr", "1e30", "--checkpoint", path(name), "--log",
                           path(name + ".jsonl")});
  }
  [[nodiscard]] std::string weights(const std::string& name) const {
    return read_file(path(name + "/model.safetensors"));
  }
};

TEST_F(Streams, StandardErrorThatCannotBeWrittenChangesNoStatus) {
  ASSERT_EQ(tessera(skipping("usual")).status, 0);
  const std::string no_reader = "mkfifo " + path("pipe") + R"(; exec 4<>)" + path("pipe") + " 3>" +
                                path("pipe") + R"( 4>&-; exec "$0" "$@" 2>&3 3>&-)";
  int number = 0;
  for (const std::string& script : {std::string{R"(exec "$0" "$@" 2>/dev/full)"},
                                    std::string{R"(exec "$0" "$@" 2>&-)"}, no_reader}) {
    SCOPED_TRACE(script);
    EXPECT_EQ(shell(script, {"plan", "--nosuch"}).status, 2);
    std::filesystem::remove(path("pipe"));
    const std::string name = "without" + std::to_string(number++);
    EXPECT_EQ(shell(script, skipping(name)).status, 0);
    std::filesystem::remove(path("pipe"));
    EXPECT_TRUE(weights(name) == weights("usual"));
  }
}

TEST_F(Streams, ClosedOnesTakeNoFilesNumber) {
  ASSERT_EQ(tessera(skipping("usual")).status, 0);
  int number = 0;
  for (const std::string closed : {"<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"}) {
    SCOPED_TRACE(closed);
    const std::string name = "without" + std::to_string(number++);
    EXPECT_EQ(shell(R"(exec "$0" "$@" )" + closed, skipping(name)).status, 0);
    EXPECT_EQ(log(name + ".jsonl").size(), 3U);
    EXPECT_TRUE(weights(name) == weights("usual"));
  }
}

TEST_F(Streams, StandardOutputThatIsFullIsStillAnError) {
  EXPECT_EQ(shell(R"(exec "$0" "$@" >/dev/full)", {"plan"}).status, 1);
}

}  // namespace
}  // namespace tessera::test::streams_test
