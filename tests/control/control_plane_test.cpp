// How the ranks of a job fail together, over any control plane.
#include "comm/control/control_plane.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <string>
#include <thread>
#include <vector>

#include "comm/control/aborted.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::control_plane_test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Records messages to send, and receives those of a test.
class Recorded final : public comm::ControlPlane {
 public:
  explicit Recorded(int rank) : comm::ControlPlane{rank, 4, 1s} {}

  std::vector<std::string> told;
  int woken = 0;

  void hear(int from, const std::string& text, int status = 1) {
    failure().hear(from, text, status);
  }
  void find_untold(const std::string& text, int reporter) { fail_untold(text, reporter); }
  [[nodiscard]] std::string state() {
    try {
      check_alive();
    } catch (const comm::Aborted& echo) {
      return std::string{"echo: "} + echo.what();
    } catch (const CommError& cause) { return std::string{"cause: "} + cause.what(); }
    return "alive";
  }

 private:
  void tell(const comm::Failure& failure) override { told.push_back(failure.text); }
  void wake() noexcept override { ++woken; }
};

TEST(ControlPlane, OneRankReportsAndTellsTheOthersOnce) {
  Recorded own{1};
  EXPECT_EQ(own.state(), "alive");
  own.fail("it", 1);
  own.fail("later", 1);
  own.abort("last");
  EXPECT_EQ(own.state(), "cause: it");
  EXPECT_THAT(own.told, ElementsAre("it"));
  EXPECT_EQ(own.woken, 1);
  EXPECT_FALSE(own.another_reports());
  EXPECT_EQ(own.told_status(), 0);
}

TEST(ControlPlane, AnEndWithoutAReasonSaysSo) {
  Recorded own{1};
  own.abort("");
  EXPECT_THAT(own.told, ElementsAre("the program ended the job and gave no reason"));
}

TEST(ControlPlane, AnotherRanksReportIsAnEchoAndIsNotRepeated) {
  Recorded own{1};
  own.fail("it", 0);
  EXPECT_EQ(own.state(), "echo: it");
  EXPECT_THAT(own.told, IsEmpty());
  EXPECT_EQ(own.woken, 1);
  EXPECT_TRUE(own.another_reports());

  Recorded finds{2};
  finds.find_untold("it", 2);
  EXPECT_EQ(finds.state(), "cause: it");
  EXPECT_THAT(finds.told, IsEmpty()) << "every rank finds it";
}

TEST(ControlPlane, AnAbortIsReportedByNoRank) {
  Recorded own{0};
  own.abort_for(FormatError{"bad file"});
  EXPECT_EQ(own.state(), "echo: rank 0: bad file");
  EXPECT_THAT(own.told, ElementsAre("rank 0: bad file"));
  EXPECT_FALSE(own.another_reports());
}

TEST(ControlPlane, TheLowestOfIndependentlyFailingRanksReports) {
  Recorded own{2};
  own.fail("mine", 2);
  own.hear(3, "rank 3's");
  EXPECT_EQ(own.state(), "cause: mine");
  own.hear(1, "rank 1's", 3);
  EXPECT_EQ(own.state(), "echo: rank 1's");
  EXPECT_EQ(own.told_status(), 3);
  own.hear(3, "rank 3 again");
  own.hear(0, "rank 0's", 2);
  own.hear(1, "rank 1's again");
  EXPECT_EQ(own.state(), "echo: rank 0's");
  EXPECT_EQ(own.told_status(), 2);
}

TEST(ControlPlane, DefersToALowerRankOnly) {
  for (const int other : {0, 3}) {
    Recorded own{2};
    own.abort("mine");
    std::thread hears{[&] { own.hear(other, "theirs"); }};
    own.give_way();
    hears.join();
    EXPECT_EQ(own.another_reports(), other == 0);
  }
}

TEST(ControlPlane, ThrowsTheFirstFailureWhateverIsFoundLater) {
  Recorded own{1};
  own.hear(0, "first");
  EXPECT_THROW(own.fail_and_throw("second", 1), comm::Aborted);
  EXPECT_EQ(own.state(), "echo: first");
}

TEST(FailureState, LimitsItsTextAndTakesAPreparedOne) {
  comm::FailureState state;
  EXPECT_TRUE(state.set(std::string(5000, 'x'), 4, 0));
  EXPECT_EQ(state.failure().text, std::string(3000, 'x'));
  EXPECT_FALSE(state.set_prepared("late", 4, 0));

  comm::FailureState prepared;
  EXPECT_TRUE(prepared.set_prepared("out of memory", 4, 1));
  EXPECT_THROW(prepared.check(1), CommError);
  EXPECT_TRUE(prepared.another_reports(0));
}

}  // namespace
}  // namespace tessera::test::control_plane_test
