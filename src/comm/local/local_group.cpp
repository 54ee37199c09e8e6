#include "comm/local/local_group.hpp"

#include <algorithm>
#include <numeric>

#include "comm/aborted.hpp"
#include "comm/batch_text.hpp"
#include "comm/failure_texts.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

/// Null where nobody is.
const Visit* anyone_in(const Meeting& meeting) noexcept {
  const auto here = [](const Visit& visit) { return visit.channel != nullptr; };
  const auto found = std::ranges::find_if(meeting.visits(), here);
  return found == meeting.visits().end() ? nullptr : &*found;
}

bool is_in(const Meeting& meeting, int job_rank) noexcept {
  return std::ranges::any_of(meeting.visits(), [&](const Visit& visit) {
    return visit.channel != nullptr && visit.channel->job_rank(visit.rank) == job_rank;
  });
}

/// The job's ranks that have yet to come; somebody is there.
std::vector<int> missing_in(const Meeting& meeting) {
  std::vector<int> ranks = anyone_in(meeting)->channel->members();
  std::erase_if(ranks, [&](int rank) { return is_in(meeting, rank); });
  return ranks;
}

}  // namespace

bool LocalChannel::has(int job_rank) const noexcept {
  return std::ranges::binary_search(members_, job_rank);
}

LocalGroup::LocalGroup(int ranks, const std::vector<std::string>& channels,
                       std::chrono::milliseconds deadline, CountTraffic count)
    : ranks_{ranks}, deadline_{std::min(deadline, kLongestDeadline)} {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  left_.reserve(all.size());
  if (count == CountTraffic::yes) { traffic_.emplace(ranks); }
  for (const std::string& name : channels) { whole_.push_back(make_channel_locked(name, all)); }
}

std::shared_ptr<LocalChannel> LocalGroup::split(const LocalChannel& whole, std::uint64_t nth,
                                                const RankGroup& group) {
  const std::scoped_lock lock{mutex_};
  const SplitKey key{whole.number(), nth, group.group};
  auto found = splits_.find(key);
  if (found == splits_.end()) {
    const Split made{make_channel_locked(group.name, group.members), 0};
    found = splits_.emplace(key, made).first;
  }
  std::shared_ptr<LocalChannel> channel = found->second.channel;
  if (++found->second.asked == group.members.size()) { splits_.erase(found); }
  return channel;
}

std::shared_ptr<LocalChannel> LocalGroup::make_channel_locked(std::string name,
                                                              std::vector<int> members) {
  return std::make_shared<LocalChannel>(next_number_++, std::move(name), std::move(members));
}

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

LocalGroup::Key LocalGroup::key_of(const Visit& visit) noexcept {
  return {visit.channel->number(), visit.kind, visit.sequence};
}

bool LocalGroup::withdrawn(const Visit& visit) noexcept {
  return visit.kind == MeetingKind::batch &&
         visit.sequence < visit.channel->withdrawn_[static_cast<std::size_t>(visit.rank)];
}

std::optional<int> LocalGroup::left_locked(const LocalChannel& channel) const noexcept {
  const auto found = std::ranges::find_if(left_, [&](int rank) { return channel.has(rank); });
  return found == left_.end() ? std::nullopt : std::optional{*found};
}

std::shared_ptr<Meeting> LocalGroup::join(const Visit& visit) {
  const int me = visit.channel->job_rank(visit.rank);
  std::unique_lock lock{mutex_};
  check_alive_locked(me);
  if (withdrawn(visit)) { throw Aborted{called(visit) + " was withdrawn"}; }

  const std::shared_ptr<Meeting> meeting = find_or_make_locked(visit);
  const Presence presence{*meeting, visit};
  if (meeting->present_ == visit.channel->size()) {
    open_locked(*meeting, visit);
    return meeting;
  }
  if (const auto left = left_locked(*visit.channel)) {
    fail_without_locked(*left, visit);
    check_alive_locked(me);
  }

  const auto over = [&] { return meeting->open_ || failure_ || withdrawn(visit); };
  const bool in_time =
      meeting->changed_.wait_until(lock, std::chrono::steady_clock::now() + deadline_, over);
  // Open wins over everything: the peers are already reading this rank's buffers.
  if (meeting->open_) { return meeting; }
  if (!in_time) { fail_locked(late_locked(*meeting, visit), visit.channel); }
  check_alive_locked(me);
  throw Aborted{called(visit) + " was withdrawn"};
}

std::shared_ptr<Meeting> LocalGroup::find_or_make_locked(const Visit& visit) {
  const Key key = key_of(visit);
  const auto found = gathering_.find(key);
  if (found != gathering_.end()) { return found->second; }
  return gathering_.emplace(key, std::make_shared<Meeting>(visit.channel->size())).first->second;
}

void LocalGroup::open_locked(Meeting& meeting, const Visit& visit) {
  if (visit.kind == MeetingKind::batch) {
    std::vector<const Batch*> batches;
    for (const Visit& v : meeting.visits_) { batches.push_back(v.batch); }
    if (const auto difference = first_difference(batches, visit.channel->members())) {
      fail_locked(disagreement_text(visit.channel->name(), visit.sequence, *difference),
                  visit.channel);
      check_alive_locked(visit.channel->job_rank(visit.rank));
    }
  }
  meeting.open_ = true;
  meeting.changed_.notify_all();
  gathering_.erase(key_of(visit));  // the ranks hold it from here on
}

void LocalGroup::sync(Meeting& meeting) noexcept {
  std::unique_lock lock{mutex_};
  const std::uint64_t round = meeting.syncs_;
  if (++meeting.in_sync_ == static_cast<int>(meeting.visits_.size())) {
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
    fail_locked(std::string{reason}, nullptr);
  } catch (...) {  // no memory for the text: fail without it
    fail_locked({}, nullptr);
  }
}

void LocalGroup::withdraw(LocalChannel& channel, int rank, std::uint64_t end) noexcept {
  const std::scoped_lock lock{mutex_};
  std::uint64_t& withdrawn = channel.withdrawn_[static_cast<std::size_t>(rank)];
  withdrawn = std::max(withdrawn, end);
  for (const auto& [key, meeting] : gathering_) { meeting->changed_.notify_all(); }
}

void LocalGroup::leave(int job_rank) noexcept {
  const std::scoped_lock lock{mutex_};
  left_.push_back(job_rank);  // within what the constructor has reserved
  for (const auto& [key, meeting] : gathering_) {
    for (const Visit& visit : meeting->visits_) {
      if (visit.channel == nullptr || !visit.channel->has(job_rank)) { continue; }
      fail_without_locked(job_rank, visit);
      return;
    }
  }
}

void LocalGroup::fail_without_locked(int left, const Visit& waiting) noexcept {
  const int rank = waiting.channel->job_rank(waiting.rank);
  try {
    fail_locked(ended_text(called(waiting), rank, left), waiting.channel);
  } catch (...) {  // no memory for the text: fail without it
    fail_locked({}, waiting.channel);
  }
}

void LocalGroup::check_alive(int job_rank) const {
  const std::scoped_lock lock{mutex_};
  check_alive_locked(job_rank);
}

void LocalGroup::check_alive_locked(int job_rank) const {
  if (!failure_) { return; }
  const bool is_cause = failure_->found_by != nullptr && failure_->found_by->has(job_rank);
  if (is_cause) { throw CommError{failure_->text}; }
  throw Aborted{failure_->text};
}

void LocalGroup::fail_locked(std::string text, std::shared_ptr<LocalChannel> found_by) noexcept {
  if (failure_) { return; }
  failure_ = Failure{std::move(text), std::move(found_by)};
  for (const auto& [key, meeting] : gathering_) { meeting->changed_.notify_all(); }
}

std::string LocalGroup::called(const Visit& visit) {
  const std::string what = visit.kind == MeetingKind::batch ? describe(*visit.batch) : "exchange";
  return call_text(what, visit.channel->name(), visit.sequence);
}

bool LocalGroup::waits_locked(int job_rank) const noexcept {
  return std::ranges::any_of(gathering_,
                             [&](const auto& entry) { return is_in(*entry.second, job_rank); });
}

/// The meetings in which those who are missing in this one wait.
std::vector<const Meeting*> LocalGroup::held_up_by_locked(const Meeting& meeting) const {
  const std::vector<int> missing = missing_in(meeting);
  std::vector<const Meeting*> meetings;
  for (const auto& [key, other] : gathering_) {
    const auto is_there = [&](int rank) { return is_in(*other, rank); };
    if (std::ranges::any_of(missing, is_there)) { meetings.push_back(other.get()); }
  }
  return meetings;
}

// A rank that waits elsewhere is not to blame, but who is missing there. Where all wait for each
// other, each is missing somewhere.
std::string LocalGroup::late_locked(const Meeting& meeting, const Visit& visit) const {
  const std::string call = called(visit);
  const int me = visit.channel->job_rank(visit.rank);
  std::vector<const Meeting*> reached{&meeting};
  for (std::size_t i = 0; i < reached.size(); ++i) {
    std::vector<int> guilty = missing_in(*reached[i]);
    std::erase_if(guilty, [&](int rank) { return waits_locked(rank); });
    if (!guilty.empty() && i == 0) { return missing_text(call, me, deadline_, guilty); }
    if (!guilty.empty()) {
      return held_up_text(call, me, deadline_, missing_in(meeting), guilty,
                          called(*anyone_in(*reached[i])));
    }
    for (const Meeting* next : held_up_by_locked(*reached[i])) {
      if (std::ranges::find(reached, next) == reached.end()) { reached.push_back(next); }
    }
  }
  return missing_text(call, me, deadline_, missing_in(meeting));
}

}  // namespace tessera
