#include "comm/control/local/local_ranks.hpp"

#include <algorithm>
#include <numeric>

#include "comm/batch_text.hpp"
#include "comm/control/aborted.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/wait_clock.hpp"
#include "comm/control/wait_graph.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

/// The visit of any rank in the meeting; null if there is none.
const Visit* anyone_in(const Meeting& meeting) noexcept {
  const auto here = [](const Visit& visit) { return visit.channel != nullptr; };
  const auto found = std::ranges::find_if(meeting.visits(), here);
  return found == meeting.visits().end() ? nullptr : &*found;
}

/// The ranks that wait in the meeting, and those that they wait for; at least one waits.
WaitGraph::Call waits_in(const Meeting& meeting) {
  const LocalChannel& channel = *anyone_in(meeting)->channel;
  WaitGraph::Call call;
  for (std::size_t rank = 0; rank < meeting.visits().size(); ++rank) {
    const bool came = meeting.visits()[rank].channel != nullptr;
    (came ? call.waiting : call.missing).push_back(channel.job_rank(static_cast<int>(rank)));
  }
  return call;
}

}  // namespace

bool LocalChannel::has(int job_rank) const noexcept {
  return std::ranges::binary_search(members_, job_rank);
}

LocalRanks::LocalRanks(int ranks, const std::vector<std::string>& channels,
                       std::chrono::milliseconds deadline, CountTraffic count)
    : deadline_{std::min(deadline, kLongestDeadline)} {
  for (int rank = 0; rank < ranks; ++rank) {
    planes_.emplace_back(*this, rank, ranks, deadline, failure_);
  }
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  left_.reserve(all.size());
  if (count == CountTraffic::yes) { traffic_.emplace(ranks); }
  for (const std::string& name : channels) { whole_.push_back(make_channel_locked(name, all)); }
}

std::shared_ptr<LocalChannel> LocalRanks::split(const LocalChannel& whole, std::uint64_t nth,
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

std::shared_ptr<LocalChannel> LocalRanks::make_channel_locked(std::string name,
                                                              std::vector<int> members) {
  return std::make_shared<LocalChannel>(next_number_++, std::move(name), std::move(members));
}

/// A rank's stay in a meeting. It ends here, under the group's lock, unless the meeting opens:
/// memory that the visit points to is freed soon after `join` has thrown.
class LocalRanks::Presence {
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

LocalRanks::Key LocalRanks::key_of(const Visit& visit) noexcept {
  return {visit.channel->number(), visit.kind, visit.sequence};
}

bool LocalRanks::withdrawn(const Visit& visit) noexcept {
  return visit.kind == MeetingKind::batch &&
         visit.sequence < visit.channel->withdrawn_[static_cast<std::size_t>(visit.rank)];
}

std::optional<int> LocalRanks::left_locked(const LocalChannel& channel) const noexcept {
  const auto found = std::ranges::find_if(left_, [&](int rank) { return channel.has(rank); });
  return found == left_.end() ? std::nullopt : std::optional{*found};
}

std::shared_ptr<Meeting> LocalRanks::join(const Visit& visit) {
  const int me = visit.channel->job_rank(visit.rank);
  std::unique_lock lock{mutex_};
  failure_->check(me);
  if (withdrawn(visit)) { throw Aborted{withdrawn_text(called(visit))}; }

  const std::shared_ptr<Meeting> meeting = find_or_make_locked(visit);
  const Presence presence{*meeting, visit};
  if (meeting->present_ == visit.channel->size()) {
    open_locked(*meeting, visit);
    return meeting;
  }
  if (const auto left = left_locked(*visit.channel)) {
    fail_without_locked(*left, visit);
    failure_->check(me);
  }

  const auto over = [&] { return meeting->open_ || failure_->failed() || withdrawn(visit); };
  const bool in_time = WaitClock{deadline_}.wait_for(meeting->changed_, lock, deadline_, over);
  // An open meeting wins over everything: peers are already reading this rank's buffers.
  if (meeting->open_) { return meeting; }
  if (!in_time) { fail_locked(late_locked(*meeting, visit), me); }
  failure_->check(me);
  throw Aborted{withdrawn_text(called(visit))};
}

std::shared_ptr<Meeting> LocalRanks::find_or_make_locked(const Visit& visit) {
  const Key key = key_of(visit);
  const auto found = gathering_.find(key);
  if (found != gathering_.end()) { return found->second; }
  return gathering_.emplace(key, std::make_shared<Meeting>(visit.channel->size())).first->second;
}

void LocalRanks::open_locked(Meeting& meeting, const Visit& visit) {
  if (visit.kind == MeetingKind::batch) {
    std::vector<const Batch*> batches;
    for (const Visit& v : meeting.visits_) { batches.push_back(v.batch); }
    if (const auto difference = first_difference(batches, [&](int rank) {
          return failure_->names().of(visit.channel->job_rank(rank));
        })) {
      fail_locked(disagreement_text(visit.channel->name(), visit.sequence, *difference),
                  visit.channel->members().front());
      failure_->check(visit.channel->job_rank(visit.rank));
    }
  }
  meeting.open_ = true;
  meeting.changed_.notify_all();
  gathering_.erase(key_of(visit));  // from here on the ranks own it
}

void LocalRanks::sync(Meeting& meeting) noexcept {
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

void LocalControlPlane::wake() noexcept {
  ranks_.wake();
}

void LocalRanks::wake() noexcept {
  const std::scoped_lock lock{mutex_};
  wake_locked();
}

void LocalRanks::wake_locked() noexcept {
  for (const auto& [key, meeting] : gathering_) { meeting->changed_.notify_all(); }
}

void LocalRanks::withdraw(LocalChannel& channel, int rank, std::uint64_t end) noexcept {
  const std::scoped_lock lock{mutex_};
  std::uint64_t& withdrawn = channel.withdrawn_[static_cast<std::size_t>(rank)];
  withdrawn = std::max(withdrawn, end);
  wake_locked();
}

void LocalRanks::leave(int job_rank) noexcept {
  const std::scoped_lock lock{mutex_};
  left_.push_back(job_rank);  // within the capacity that the constructor reserved
  for (const auto& [key, meeting] : gathering_) {
    for (const Visit& visit : meeting->visits_) {
      if (visit.channel == nullptr || !visit.channel->has(job_rank)) { continue; }
      fail_without_locked(job_rank, visit);
      return;
    }
  }
}

void LocalRanks::fail_without_locked(int left, const Visit& waiting) noexcept {
  const int rank = waiting.channel->job_rank(waiting.rank);
  try {
    fail_locked(ended_text(failure_->names(), called(waiting), rank, left), rank);
  } catch (const std::exception&) {  // no memory for the text: fails without it
    fail_locked({}, rank);
  }
}

void LocalRanks::fail_locked(std::string_view text, int reporter) noexcept {
  if (failure_->set(text, kCommStatus, reporter)) { wake_locked(); }
}

std::string LocalRanks::called(const Visit& visit) {
  const std::string what = visit.kind == MeetingKind::batch ? describe(*visit.batch) : "exchange";
  return call_text(what, visit.channel->name(), visit.sequence);
}

// If all ranks wait for each other, each is missing in some call.
std::string LocalRanks::late_locked(const Meeting& meeting, const Visit& visit) const {
  WaitGraph graph;
  std::vector<const Meeting*> meetings;
  std::size_t own = 0;
  for (const auto& [key, other] : gathering_) {
    if (anyone_in(*other) == nullptr) { continue; }
    if (other.get() == &meeting) { own = meetings.size(); }
    meetings.push_back(other.get());
    graph.calls.push_back(waits_in(*other));
  }
  const std::string call = called(visit);
  const int me = visit.channel->job_rank(visit.rank);
  const std::vector<int>& missing = graph.calls[own].missing;
  const std::optional<Blame> blame = find_blame(graph, own);
  if (blame && blame->call != own) {
    return held_up_text(failure_->names(), call, me, deadline_, missing,
                        {blame->ranks, called(*anyone_in(*meetings[blame->call]))});
  }
  return missing_text(failure_->names(), call, me, deadline_, blame ? blame->ranks : missing);
}

}  // namespace tessera::comm
