#include "comm/control/failure_state.hpp"

#include <new>
#include <utility>

#include "comm/control/aborted.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

// Longer reasons help nobody, and every rank keeps one.
constexpr std::size_t kReasonBytes = 3000;

void assign(std::string& text, std::string_view from) noexcept {
  try {
    text = from.substr(0, kReasonBytes);
  } catch (const std::bad_alloc&) {  // fail without the text
    text.clear();
  }
}

}  // namespace

bool FailureState::set(std::string_view text, int status, int reporter, FailureKind kind) noexcept {
  const std::scoped_lock lock{mutex_};
  if (failure_) { return false; }
  failure_.emplace(Failure{.text = {}, .status = status, .reporter = reporter, .kind = kind});
  assign(failure_->text, text);
  failed_ = true;
  return true;
}

bool FailureState::set_prepared(std::string&& text, int status, int reporter) noexcept {
  const std::scoped_lock lock{mutex_};
  if (failure_) { return false; }
  failure_.emplace(Failure{.text = std::move(text), .status = status, .reporter = reporter});
  failed_ = true;
  return true;
}

void FailureState::hear(int from, std::string_view text, int status) noexcept {
  if (set(text, status, from)) { return; }
  const std::scoped_lock lock{mutex_};
  if (from >= failure_->reporter) { return; }
  assign(failure_->text, text);
  failure_->status = status;
  failure_->reporter = from;
  failure_->kind = FailureKind::found;
}

void FailureState::check(int own) const {
  if (!failed_) { return; }
  const std::scoped_lock lock{mutex_};
  if (failure_->reporter == own && failure_->kind == FailureKind::found) {
    throw CommError{failure_->text};
  }
  throw Aborted{failure_->text};
}

bool FailureState::another_reports(int own) const noexcept {
  const std::scoped_lock lock{mutex_};
  return failure_ && failure_->reporter != own;
}

Failure FailureState::failure() const {
  const std::scoped_lock lock{mutex_};
  TESSERA_ASSERT(failure_.has_value());
  return *failure_;
}

int FailureState::status_from_others(int own) const noexcept {
  const std::scoped_lock lock{mutex_};
  return failure_ && failure_->reporter != own ? failure_->status : 0;
}

}  // namespace tessera::comm
