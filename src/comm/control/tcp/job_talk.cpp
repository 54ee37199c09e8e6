#include "comm/control/tcp/job_talk.hpp"

#include <optional>
#include <utility>

#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/messages.hpp"
#include "comm/control/wait_graph.hpp"
#include "tessera/base/error.hpp"

namespace tessera {

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
  const HeldCall call{frame.call, frame.sequence};
  if (decode_held(frame.payload)) {
    held_.insert_or_assign(rank, call);
  } else if (const auto found = held_.find(rank); found != held_.end() && found->second == call) {
    held_.erase(found);  // unless it is now held up elsewhere
  }
}

void JobTalk::answer(int rank, Frame& frame) {
  AnswerMessage said{.missing = missing(frame.call, frame.sequence)};
  if (said.missing.empty()) {
    said.by = dispute_.behind(frame.call);
  } else {
    WaitGraph graph{{{.missing = said.missing}}};
    std::vector<HeldCall> calls{{frame.call, frame.sequence}};
    for (const auto& [held, call] : held_) {
      graph.calls.push_back({.missing = missing(call.series, call.sequence), .waiting = {held}});
      calls.push_back(call);
    }
    const std::optional<Blame> blame = find_blame(graph, 0);
    if (blame && blame->call == 0) {
      said.missing = blame->ranks;
    } else if (blame) {
      const HeldCall& call = calls[blame->call];
      said.by = {blame->ranks, batch_text(groups_.channel_name(call.series), call.sequence)};
    }
  }
  frame.type = FrameType::answer;
  frame.payload = encode(said);
  tell_({rank}, frame);
}

std::vector<int> JobTalk::missing(const CallSeries& call, std::uint64_t sequence) const {
  const auto batches = dispute_.missing(call, sequence);
  return batches ? *batches : meetings_.missing(call, sequence);
}

}  // namespace tessera
