#include "comm/control/local/exchange_texts.hpp"

#include <exception>

namespace tessera::comm {

std::vector<std::string> exchange_texts(LocalRanks& ranks,
                                        const std::shared_ptr<LocalChannel>& channel, int rank,
                                        std::uint64_t sequence, const std::string& message) {
  const std::shared_ptr<Meeting> meeting = ranks.join({.channel = channel,
                                                       .kind = MeetingKind::exchange,
                                                       .sequence = sequence,
                                                       .rank = rank,
                                                       .text = &message});
  std::vector<std::string> texts;
  std::exception_ptr error;
  try {
    for (const Visit& v : meeting->visits()) { texts.push_back(*v.text); }
  } catch (...) { error = std::current_exception(); }  // peers may still be reading `message`
  ranks.sync(*meeting);
  if (error) { std::rethrow_exception(error); }
  return texts;
}

}  // namespace tessera::comm
