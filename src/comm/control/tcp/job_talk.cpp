#include "comm/control/tcp/job_talk.hpp"

#include <optional>
#include <utility>

#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/messages.hpp"
#include "comm/control/wait_graph.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {

JobTalk::JobTalk(int ranks, const RankNames& names, Tell tell)
    : tell_{std::move(tell)}, groups_{ranks}, meetings_{groups_}, dispute_{groups_, names} {}

void JobTalk::hear(int rank, Frame& frame) {
  frame.rank = rank;
  switch (frame.type) {
    case FrameType::group:
      return on_group(rank, frame);
    case FrameType::text:
      return on_text(rank, frame);
    case FrameType::failure:
      return tell_(everyone(), frame);
    case FrameType::issued:
      return dispute_.on_issued(rank, frame);
    case FrameType::code:
      return dispute_.on_code(rank, frame);
    case FrameType::held:
      return on_held(rank, frame);
    case FrameType::ask:
      return answer(rank, frame);
    default:
      throw CommError{"a rank sent a message that only the coordinator may send"};
  }
}

void JobTalk::on_group(int rank, const Frame& frame) {
  const GroupMessage group = decode_group(frame.payload);
  groups_.add(frame.call.group, group.name, group.members);
  (void)groups_.place(frame.call.group, rank);
}

void JobTalk::on_text(int rank, Frame& frame) {
  if (frame.call == CallKind::end) {
    (void)decode_counts(
        frame.payload);  // throws if it is invalid: the other ranks must not read such a frame
    Frame told = frame;
    told.type = FrameType::at_end;
    tell_(everyone(), told);
  }
  // The rank's issued batches came with it: ranks that differ do not get past a call.
  if (!meetings_.add(rank, frame) || dispute_.open()) { return; }
  tell_(groups_.members(frame.call.group), meetings_.take(frame.call, frame.sequence));
}

void JobTalk::settle(WaitClock::Time now) {
  dispute_.settle(now, [this](int rank, const Frame& frame) { tell_({rank}, frame); });
}

void JobTalk::on_held(int rank, const Frame& frame) {
  (void)groups_.place(frame.call.group, rank);
  const HeldRank held{rank, frame.call, frame.sequence};
  WaitMessage wait = wait_from(frame);
  if (wait.waits) {
    held_.insert_or_assign(held, std::move(wait));
  } else {
    held_.erase(held);
  }
}

void JobTalk::answer(int rank, Frame& frame) {
  AnswerMessage said{.missing = missing(frame.call, frame.sequence, wait_from(frame))};
  if (said.missing.empty()) {
    said.by = dispute_.behind(frame.call);
  } else {
    WaitGraph graph{{{.missing = said.missing}}};
    std::vector<HeldUp> calls(1);
    for (const auto& [held, wait] : held_) {
      graph.calls.push_back(
          {.missing = missing(held.series, held.sequence, wait), .waiting = {held.rank}});
      calls.push_back(
          {{}, batch_text(groups_.channel_name(held.series), held.sequence), wait.owed});
    }
    for (auto& [call, sequence, present] : meetings_.open_exchanges()) {
      graph.calls.push_back(
          {.missing = meetings_.missing(call, sequence), .waiting = std::move(present)});
      calls.push_back({{}, call_text("exchange", groups_.channel_name(call), sequence)});
    }
    const std::optional<Blame> blame = find_blame(graph, 0);
    if (blame && blame->call == 0) {
      said.missing = blame->ranks;
    } else if (blame) {
      said.by = std::move(calls[blame->call]);
      said.by.guilty = blame->ranks;
    }
  }
  frame.type = FrameType::answer;
  frame.payload = encode(said);
  tell_({rank}, frame);
}

WaitMessage JobTalk::wait_from(const Frame& frame) const {
  WaitMessage wait = decode_wait(frame.payload);
  for (const int rank : wait.ranks) { (void)groups_.place(frame.call.group, rank); }
  return wait;
}

std::vector<int> JobTalk::missing(const CallSeries& call, std::uint64_t sequence,
                                  const WaitMessage& wait) const {
  return wait.ranks.empty() ? missing(call, sequence) : wait.ranks;
}

std::vector<int> JobTalk::missing(const CallSeries& call, std::uint64_t sequence) const {
  const auto batches = dispute_.missing(call, sequence);
  return batches ? *batches : meetings_.missing(call, sequence);
}

}  // namespace tessera::comm
