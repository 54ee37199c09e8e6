#include "comm/local/local_group.hpp"

#include <algorithm>

#include "comm/aborted.hpp"
#include "comm/batch_text.hpp"
#include "comm/failure_texts.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

LocalGroup::LocalGroup(int ranks, std::vector<std::string> channels,
                       std::chrono::milliseconds deadline)
    : ranks_{ranks},
      channels_{std::move(channels)},
      deadline_{std::min(deadline, kLongestDeadline)},
      withdrawn_(channels_.size() * static_cast<std::size_t>(ranks), 0) {}

/// A rank's stay in a meeting. It ends here, under the group's lock, unless the meeting opens: what
/// the visit points to is gone soon after `join` has thrown.
class LocalGroup::Presence {
 public:
  Presence(Meeting& meeting, const Visit& visit) noexcept : meeting_{meeting}, rank_{visit.rank} {
    place() = visit;
    ++meeting_.present_;
  }
  Presence(const Presence&) = delete;
  Presence& operator=(const Presence&) = delete;
  ~Presence() {
    if (meeting_.open_) { return; }
    place() = Visit{};
    --meeting_.present_;
  }

 private:
  Visit& place() const noexcept { return meeting_.visits_[static_cast<std::size_t>(rank_)]; }
  Meeting& meeting_;
  int rank_;
};

LocalGroup::Key LocalGroup::key_of(const Visit& visit) const noexcept {
  return {2 * visit.channel + (visit.purpose == Purpose::exchange ? 1 : 0), visit.sequence};
}

bool LocalGroup::withdrawn(const Visit& visit) const noexcept {
  const auto slot = static_cast<std::size_t>(visit.channel * ranks_ + visit.rank);
  return visit.purpose == Purpose::batch && visit.sequence < withdrawn_[slot];
}

std::shared_ptr<Meeting> LocalGroup::join(const Visit& visit) {
  std::unique_lock lock{mutex_};
  check_alive_locked();
  if (withdrawn(visit)) { throw Aborted{called(visit) + " was withdrawn"}; }

  const std::shared_ptr<Meeting> meeting = find_or_make_locked(key_of(visit));
  const Presence presence{*meeting, visit};
  if (meeting->present_ == ranks_) {
    open_locked(*meeting, visit);
    return meeting;
  }
  if (left_) {
    fail_without_locked(*left_, visit);
    check_alive_locked();
  }

  const auto over = [&] { return meeting->open_ || failure_ || withdrawn(visit); };
  const bool in_time =
      meeting->changed_.wait_until(lock, std::chrono::steady_clock::now() + deadline_, over);
  // Open wins over everything: the peers are already reading this rank's buffers.
  if (meeting->open_) { return meeting; }
  if (!in_time) { fail_locked(late(*meeting, visit), /*echo=*/false); }
  check_alive_locked();
  throw Aborted{called(visit) + " was withdrawn"};
}

std::shared_ptr<Meeting> LocalGroup::find_or_make_locked(const Key& key) {
  const auto found = gathering_.find(key);
  if (found != gathering_.end()) { return found->second; }
  return gathering_.emplace(key, std::make_shared<Meeting>(ranks_)).first->second;
}

void LocalGroup::open_locked(Meeting& meeting, const Visit& visit) {
  if (visit.purpose == Purpose::batch) {
    std::vector<const Batch*> batches;
    for (const Visit& v : meeting.visits_) { batches.push_back(v.batch); }
    if (const auto difference = first_difference(batches)) {
      fail_locked(disagreement_text(channels_[static_cast<std::size_t>(visit.channel)],
                                    visit.sequence, *difference),
                  /*echo=*/false);
      check_alive_locked();
    }
  }
  meeting.open_ = true;
  meeting.changed_.notify_all();
  gathering_.erase(key_of(visit));  // the ranks hold it from here on
}

void LocalGroup::sync(Meeting& meeting) noexcept {
  std::unique_lock lock{mutex_};
  const std::uint64_t round = meeting.syncs_;
  if (++meeting.in_sync_ == ranks_) {
    meeting.in_sync_ = 0;
    ++meeting.syncs_;
    meeting.changed_.notify_all();
    return;
  }
  meeting.changed_.wait(lock, [&] { return meeting.syncs_ != round; });
}

void LocalGroup::abort(std::string_view reason) noexcept {
  const std::scoped_lock lock{mutex_};
  try {
    fail_locked(std::string{reason}, /*echo=*/true);
  } catch (...) {  // no memory for the text: fail without it
    fail_locked({}, /*echo=*/true);
  }
}

void LocalGroup::withdraw(int channel, int rank, std::uint64_t end) noexcept {
  const std::scoped_lock lock{mutex_};
  auto& withdrawn = withdrawn_[static_cast<std::size_t>(channel * ranks_ + rank)];
  withdrawn = std::max(withdrawn, end);
  for (const auto& [key, meeting] : gathering_) { meeting->changed_.notify_all(); }
}

void LocalGroup::leave(int rank) noexcept {
  const std::scoped_lock lock{mutex_};
  if (!left_) { left_ = rank; }
  for (const auto& [key, meeting] : gathering_) {
    for (const Visit& visit : meeting->visits_) {
      if (visit.batch == nullptr && visit.text == nullptr) { continue; }
      fail_without_locked(rank, visit);
      return;
    }
  }
}

void LocalGroup::fail_without_locked(int left, const Visit& waiting) noexcept {
  try {
    fail_locked(ended_text(called(waiting), waiting.rank, left), /*echo=*/false);
  } catch (...) {  // no memory for the text: fail without it
    fail_locked({}, /*echo=*/false);
  }
}

void LocalGroup::check_alive() const {
  const std::scoped_lock lock{mutex_};
  check_alive_locked();
}

void LocalGroup::check_alive_locked() const {
  if (!failure_) { return; }
  if (failure_->echo) { throw Aborted{failure_->text}; }
  throw CommError{failure_->text};
}

void LocalGroup::fail_locked(std::string text, bool echo) noexcept {
  if (failure_) { return; }
  failure_ = Failure{std::move(text), echo};
  for (const auto& [key, meeting] : gathering_) { meeting->changed_.notify_all(); }
}

std::string LocalGroup::called(const Visit& visit) const {
  const std::string what = visit.purpose == Purpose::batch ? describe(*visit.batch) : "exchange";
  return call_text(what, channels_[static_cast<std::size_t>(visit.channel)], visit.sequence);
}

std::string LocalGroup::late(const Meeting& meeting, const Visit& visit) const {
  std::vector<int> missing;
  for (int rank = 0; rank < ranks_; ++rank) {
    const Visit& v = meeting.visits_[static_cast<std::size_t>(rank)];
    if (v.batch == nullptr && v.text == nullptr) { missing.push_back(rank); }
  }
  return missing_text(called(visit), visit.rank, deadline_, missing);
}

}  // namespace tessera
