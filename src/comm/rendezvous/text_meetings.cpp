#include "comm/rendezvous/text_meetings.hpp"

#include "tessera/base/error.hpp"

namespace tessera {

bool TextMeetings::add(int rank, Frame& frame) {
  Meeting& meeting = meetings_[{frame.call, frame.sequence}];
  meeting.texts.resize(static_cast<std::size_t>(ranks_));
  auto& place = meeting.texts[static_cast<std::size_t>(rank)];
  if (place) { throw CommError{"a rank has come to a call twice"}; }
  place = std::move(frame.payload);
  return ++meeting.present == ranks_;
}

Frame TextMeetings::take(CallKind call, std::uint64_t sequence) {
  Frame frame;
  frame.type = FrameType::texts;
  frame.call = call;
  frame.sequence = sequence;
  const auto found = meetings_.find({call, sequence});
  PayloadWriter all;
  for (const auto& text : found->second.texts) { all.text(*text); }
  meetings_.erase(found);
  frame.payload = all.take();
  if (frame.payload.size() > UINT32_MAX) {
    frame.type = FrameType::differ;
    frame.payload = "what the ranks exchange is more than 4 GiB together";
  }
  return frame;
}

std::vector<int> TextMeetings::missing(CallKind call, std::uint64_t sequence) const {
  std::vector<int> ranks;
  const auto meeting = meetings_.find({call, sequence});
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool came = meeting != meetings_.end() &&
                      meeting->second.texts[static_cast<std::size_t>(rank)].has_value();
    if (!came) { ranks.push_back(rank); }
  }
  return ranks;
}

}  // namespace tessera
