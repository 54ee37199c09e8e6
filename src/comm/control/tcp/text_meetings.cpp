#include "comm/control/tcp/text_meetings.hpp"

#include "tessera/base/error.hpp"

namespace tessera::comm {

bool TextMeetings::add(int rank, Frame& frame) {
  const std::size_t at = groups_.place(frame.call.group, rank);
  // A rank waits in one call of a series at a time, so each series has one meeting.
  const auto over = over_.find(frame.call);
  if (frame.sequence != (over == over_.end() ? 0 : over->second)) {
    throw CommError{"a rank's calls are out of order"};
  }
  Meeting& meeting = meetings_[{frame.call, frame.sequence}];
  meeting.texts.resize(groups_.members(frame.call.group).size());
  auto& place = meeting.texts[at];
  if (place) { throw CommError{"a rank made the same call twice"}; }
  place = std::move(frame.payload);
  return ++meeting.present == meeting.texts.size();
}

Frame TextMeetings::take(const CallSeries& call, std::uint64_t sequence) {
  Frame frame;
  frame.type = FrameType::texts;
  frame.call = call;
  frame.sequence = sequence;
  const auto found = meetings_.find({call, sequence});
  PayloadWriter all;
  for (const auto& text : found->second.texts) { all.text(*text); }
  meetings_.erase(found);
  over_[call] = sequence + 1;
  frame.payload = all.take();
  if (frame.payload.size() > UINT32_MAX) {
    frame.type = FrameType::differ;
    frame.rank = groups_.members(call.group).front();
    frame.payload = "the texts that the ranks exchange exceed 4 GiB together";
  }
  return frame;
}

std::vector<int> TextMeetings::missing(const CallSeries& call, std::uint64_t sequence) const {
  std::vector<int> ranks;
  if (const auto over = over_.find(call); over != over_.end() && sequence < over->second) {
    return ranks;
  }
  const auto meeting = meetings_.find({call, sequence});
  const std::vector<int>& members = groups_.members(call.group);
  for (std::size_t at = 0; at < members.size(); ++at) {
    const bool came = meeting != meetings_.end() && meeting->second.texts[at].has_value();
    if (!came) { ranks.push_back(members[at]); }
  }
  return ranks;
}

std::vector<TextMeetings::OpenExchange> TextMeetings::open_exchanges() const {
  std::vector<OpenExchange> open;
  for (const auto& [key, meeting] : meetings_) {
    const auto& [call, sequence] = key;
    if (call.kind != CallKind::gather_text && call.kind != CallKind::reduce_text) { continue; }
    OpenExchange& exchange = open.emplace_back(OpenExchange{call, sequence, {}});
    const std::vector<int>& members = groups_.members(call.group);
    for (std::size_t at = 0; at < members.size(); ++at) {
      if (meeting.texts[at]) { exchange.present.push_back(members[at]); }
    }
  }
  return open;
}

}  // namespace tessera::comm
