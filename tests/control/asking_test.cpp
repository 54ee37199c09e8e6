// A rank that asks who is late, while the others arrive, fail or differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "control/meeting.hpp"
#include "control/spoken_for.hpp"
#include "tessera/base/error.hpp"

namespace tessera::test::asking_test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

comm::Frame frame_of(comm::FrameType type, comm::CallKind call, std::string payload) {
  comm::Frame frame;
  frame.type = type;
  frame.call = call;
  frame.payload = std::move(payload);
  return frame;
}

std::string answer_of(const std::vector<int>& missing) {
  comm::PayloadWriter said;
  said.number(std::ssize(missing));
  for (const int rank : missing) { said.number(rank); }
  return said.number(0).text("").number(0).take();
}

/// Rank 1 of two, and the answers of rank 0's coordinator once rank 1 asks who is late.
class Asking : public ::testing::Test {
 protected:
  /// Sends the last frame `last_after` later, or at once if the rank fails.
  void answer_with(std::vector<comm::Frame> frames, std::chrono::milliseconds last_after = {}) {
    coordinator_.join();
    answers_ = std::thread{[this, frames = std::move(frames), last_after] {
      EXPECT_EQ(coordinator_.heard(comm::FrameType::ask), comm::encode(comm::WaitMessage{}));
      for (std::size_t i = 0; i < frames.size(); ++i) {
        if (i + 1 == frames.size()) { wait_unless_failed(last_after); }
        coordinator_.say(frames[i]);
      }
    }};
  }
  void TearDown() override { answers_.join(); }
  [[nodiscard]] comm::TcpControlPlane& control() noexcept { return control_; }
  [[nodiscard]] std::string error_while_late() {
    try {
      return control_.late_text(comm::CallKind::gather_batch, 0, "the call", 70ms);
    } catch (const CommError& error) { return error.what(); }
  }
  [[nodiscard]] std::string error_of_exchange() {
    try {
      (void)control_.exchange(comm::CallKind::setup, "b");
    } catch (const CommError& error) { return error.what(); }
    return {};
  }

 private:
  void wait_unless_failed(std::chrono::milliseconds time) const {
    const auto end = std::chrono::steady_clock::now() + time;
    while (!control_.failed() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(1ms);
    }
  }

  SpokenForCoordinator coordinator_;
  comm::TcpControlPlane control_{place_of(1, 2, coordinator_.port()), 5s, 200ms};
  std::thread answers_;
};

TEST_F(Asking, EndsWhenTheJobFails) {
  answer_with({frame_of(comm::FrameType::failure, comm::CallKind::setup, "rank 0: out of coffee")});
  EXPECT_EQ(error_while_late(), "rank 0: out of coffee");
}

TEST_F(Asking, NamesARankThatHadNoMemoryToSayMore) {
  control().names().arrange([](int rank) { return "pipe " + std::to_string(rank); });
  answer_with({frame_of(comm::FrameType::failure, comm::CallKind::setup, "")});
  EXPECT_EQ(error_while_late(),
            "rank 0 (pipe 0): out of memory on the thread that receives messages of other ranks");
}

TEST_F(Asking, IsUnnecessaryOnceAllRanksHaveArrived) {
  answer_with({frame_of(comm::FrameType::texts, comm::CallKind::setup,
                        comm::PayloadWriter{}.text("a").text("b").take()),
               frame_of(comm::FrameType::answer, comm::CallKind::setup, answer_of({}))});
  EXPECT_THAT(control().exchange(comm::CallKind::setup, "b"), ElementsAre("a", "b"));
}

// The coordinator then holds back the texts and asks the ranks first.
TEST_F(Asking, WaitsForTheDifferenceOnceAllRanksHaveArrived) {
  answer_with({frame_of(comm::FrameType::answer, comm::CallKind::setup, answer_of({})),
               frame_of(comm::FrameType::differ, comm::CallKind::setup, "ranks disagree")},
              100ms);
  EXPECT_EQ(error_of_exchange(), "ranks disagree");
}

TEST(AskingTheCoordinator, NoRankIsMissingFromACompletedCall) {
  Meeting meeting{2};
  meeting.start(0, [](comm::TcpControlPlane& control) {
    (void)control.exchange(comm::CallKind::setup, "a");
    (void)control.exchange(comm::CallKind::end, {});
  });
  SpokenForRank rank{1, 2, meeting.port()};
  rank.say(frame_of(comm::FrameType::text, comm::CallKind::setup, "b"));
  EXPECT_EQ(rank.heard(comm::FrameType::texts), comm::PayloadWriter{}.text("a").text("b").take());
  rank.say(
      frame_of(comm::FrameType::ask, comm::CallKind::setup, comm::encode(comm::WaitMessage{})));
  EXPECT_EQ(rank.heard(comm::FrameType::answer), answer_of({}));
  rank.say(frame_of(comm::FrameType::text, comm::CallKind::end, {}));
  meeting.join();
  EXPECT_EQ(meeting.error(0), "");
}

// Rank 0's process has stopped: its ranks cannot hear of each other's failures.
TEST(AskingTheCoordinator, WithoutAnAnswerRankZeroIsNamedAndRankOneReports) {
  for (const int rank : {1, 2}) {
    SpokenForCoordinator coordinator;
    comm::TcpControlPlane control{place_of(rank, 3, coordinator.port()), 5s, 50ms};
    coordinator.join();
    try {
      (void)control.exchange(comm::CallKind::gather_text, {});
      ADD_FAILURE() << "nobody has answered";
    } catch (const CommError& error) {
      EXPECT_THAT(error.what(), HasSubstr("waited 50 ms for rank 0, which did not call it"));
    }
    EXPECT_EQ(control.another_reports(), rank == 2);
  }
}

}  // namespace
}  // namespace tessera::test::asking_test
