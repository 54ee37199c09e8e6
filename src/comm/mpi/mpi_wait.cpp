#include "comm/mpi/mpi_wait.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <vector>

#include "comm/control/wait_clock.hpp"
#include "comm/mpi/mpi_pause.hpp"

namespace tessera::comm {
namespace {

// When a wait is told to the ranks that may wait for this one, and ranks are checked for the end of
// their runs. Before that, waiting costs nothing extra.
constexpr std::chrono::milliseconds kStill{200};

/// The time during which one wait has seen nothing move. Time in which this process was stopped
/// does not count.
class Stillness {
 public:
  explicit Stillness(std::chrono::milliseconds patience)
      : patience_{patience}, clock_{patience}, moved_{clock_.now()}, looked_{moved_} {}

  void look() noexcept { looked_ = clock_.now(); }
  void something_moved() noexcept {
    looked_ = moved_ = clock_.now();
    pause_.restart();
  }
  void pause() noexcept { pause_.pause(); }
  /// Whether it lasts so long that others have to know.
  [[nodiscard]] bool is_long() const noexcept {
    return looked_ - moved_ > std::min<WaitClock::Duration>(kStill, patience_ / 4);
  }
  [[nodiscard]] bool too_long() const noexcept { return looked_ - moved_ > patience_; }

 private:
  const std::chrono::milliseconds patience_;
  WaitClock clock_;
  WaitClock::Time moved_;
  WaitClock::Time looked_;
  MpiPause pause_;
};

/// What the other ranks know of a wait: that it is long, and for whom.
class ToldWait {
 public:
  explicit ToldWait(const MpiWait& wait) noexcept : wait_{wait} {}
  ToldWait(const ToldWait&) = delete;
  ToldWait& operator=(const ToldWait&) = delete;
  ~ToldWait() { end(); }

  void begin(const std::vector<int>& ranks) {
    if (told_) { return; }
    told_ = true;
    wait_.control.note_wait(wait_.channel, wait_.sequence, {.owed = wait_.owed, .ranks = ranks});
  }
  void end() noexcept {
    if (!told_) { return; }
    told_ = false;
    try {
      wait_.control.note_wait(wait_.channel, wait_.sequence, {.waits = false});
    } catch (const std::exception& error) { wait_.control.abort(error.what()); }
  }

 private:
  const MpiWait& wait_;
  bool told_ = false;
};

void check_ended(const MpiWait& wait) {
  const std::optional<int> ended = wait.control.ended_without(wait.channel, wait.sequence);
  if (!ended) { return; }
  TcpControlPlane& control = wait.control;
  control.fail_and_throw(ended_text(control.names(), wait.called(), control.rank(), *ended),
                         control.rank());
}

}  // namespace

void MpiWait::until_done(MpiRequests& requests) const {
  Stillness still{control.deadline()};
  ToldWait told{*this};
  while (!requests.done()) {
    control.check_alive();
    bool any = false;
    {
      const MpiCalls calls{process};
      any = requests.test();
    }
    if (requests.done()) { return; }
    control.check_alive();
    if (check) { check(); }
    if (any) {
      still.something_moved();
      told.end();
      continue;
    }
    still.look();
    if (still.is_long()) {
      told.begin(requests.peers());
      check_ended(*this);
    }
    if (still.too_long()) {
      control.fail_late(channel, sequence, called(), control.deadline(),
                        {.owed = owed, .ranks = requests.peers()});
    }
    still.pause();
  }
}

}  // namespace tessera::comm
