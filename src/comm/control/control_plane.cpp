#include "comm/control/control_plane.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "comm/control/failure_texts.hpp"
#include "comm/control/wait_clock.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {

ControlPlane::ControlPlane(int rank, int size, std::chrono::milliseconds deadline,
                           std::shared_ptr<FailureState> failure)
    : rank_{rank},
      size_{size},
      deadline_{std::min(deadline, kLongestDeadline)},
      failure_{std::move(failure)} {}

void ControlPlane::abort(std::string_view reason, int status) noexcept {
  const std::string_view told =
      reason.empty() ? "the program ended the job and gave no reason" : reason;
  if (failure_->set(told, status, rank_, FailureKind::requested)) { tell_failure(); }
}

void ControlPlane::abort_for(const std::exception& error) noexcept {
  try {
    abort(fmt::format("{}: {}", names().of(rank_), error.what()));
  } catch (const std::exception&) { abort("out of memory"); }
}

void ControlPlane::fail(const std::string& text, int reporter) noexcept {
  if (reporter != rank_) { return fail_untold(text, reporter); }
  if (failure_->set(text, kCommStatus, rank_)) { tell_failure(); }
}

void ControlPlane::fail_untold(const std::string& text, int reporter) noexcept {
  if (failure_->set(text, kCommStatus, reporter)) { wake(); }
}

void ControlPlane::fail_and_throw(const std::string& text, int reporter) {
  fail(text, reporter);
  failure_->check(rank_);
  throw CommError{text};
}

void ControlPlane::tell_failure() noexcept {
  wake();
  if (size_ == 1) { return; }
  try {
    // Read again here: another thread may have received a lower rank's failure.
    tell(failure_->failure());
  } catch (const std::exception&) {  // the end of the process tells them
  }
}

void ControlPlane::check_alive() {
  failure_->check(rank_);
}

void ControlPlane::give_way() noexcept {
  Patience patience{kTurn};
  while (rank_ != 0 && !another_reports() && !patience.over()) {
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
}

}  // namespace tessera::comm
