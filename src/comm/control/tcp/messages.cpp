#include "comm/control/tcp/messages.hpp"

#include <iterator>
#include <limits>
#include <utility>

#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

[[noreturn]] void refuse() {
  throw CommError{"a message between ranks has an invalid value"};
}

int rank_from(PayloadReader& reader) {
  const std::int64_t rank = reader.number();
  if (rank < 0 || rank > std::numeric_limits<int>::max()) { refuse(); }
  return static_cast<int>(rank);
}

bool flag_from(PayloadReader& reader) {
  const std::int64_t flag = reader.number();
  if (flag != 0 && flag != 1) { refuse(); }
  return flag == 1;
}

void must_end(const PayloadReader& reader) {
  if (!reader.empty()) { refuse(); }
}

}  // namespace

std::string encode(const HelloMessage& hello) {
  return PayloadWriter{}
      .number(hello.size)
      .text(hello.build)
      .text(hello.token)
      .text(hello.secret)
      .text(hello.who)
      .take();
}

HelloMessage decode_hello(std::string_view payload) {
  PayloadReader reader{payload};
  HelloMessage hello;
  hello.size = reader.number();
  hello.build = reader.text();
  hello.token = reader.text();
  hello.secret = reader.text();
  hello.who = reader.text();
  return hello;  // another build may send more, and is then told that it is another build
}

std::string encode(const GroupMessage& group) {
  PayloadWriter writer;
  writer.text(group.name);
  for (const int member : group.members) { writer.number(member); }
  return writer.take();
}

GroupMessage decode_group(std::string_view payload) {
  PayloadReader reader{payload};
  GroupMessage group{reader.text(), {}};
  while (!reader.empty()) { group.members.push_back(rank_from(reader)); }
  return group;
}

std::vector<std::string> decode_texts(std::string_view payload, std::size_t ranks) {
  PayloadReader reader{payload};
  std::vector<std::string> texts;
  while (texts.size() < ranks) { texts.push_back(reader.text()); }
  must_end(reader);
  return texts;
}

std::string encode(const AnswerMessage& answer) {
  PayloadWriter writer;
  for (const std::vector<int>* const ranks : {&answer.missing, &answer.by.guilty}) {
    writer.number(std::ssize(*ranks));
    for (const int rank : *ranks) { writer.number(rank); }
  }
  return writer.text(answer.by.where).number(static_cast<std::int64_t>(answer.by.owed)).take();
}

AnswerMessage decode_answer(std::string_view payload) {
  PayloadReader reader{payload};
  AnswerMessage answer;
  for (std::vector<int>* const ranks : {&answer.missing, &answer.by.guilty}) {
    const std::int64_t count = reader.number();
    if (count < 0) { refuse(); }
    for (std::int64_t left = count; left > 0; --left) { ranks->push_back(rank_from(reader)); }
  }
  answer.by.where = reader.text();
  answer.by.owed = flag_from(reader) ? Owed::data : Owed::call;
  must_end(reader);
  return answer;
}

std::string encode(const CallCounts& counts) {
  PayloadWriter writer;
  for (const auto& [call, count] : counts) {
    writer.number(static_cast<std::int64_t>(call.kind))
        .number(static_cast<std::int64_t>(call.group))
        .number(static_cast<std::int64_t>(count));
  }
  return writer.take();
}

CallCounts decode_counts(std::string_view payload) {
  PayloadReader reader{payload};
  CallCounts counts;
  while (!reader.empty()) {
    const std::int64_t kind = reader.number();
    if (kind < 0 || kind >= std::int64_t{kCallKinds}) { refuse(); }
    const auto group = static_cast<std::uint64_t>(reader.number());
    counts[{static_cast<CallKind>(kind), group}] = static_cast<std::uint64_t>(reader.number());
  }
  return counts;
}

std::string encode(const WaitMessage& wait) {
  PayloadWriter writer;
  writer.number(wait.waits ? 1 : 0).number(static_cast<std::int64_t>(wait.owed));
  for (const int rank : wait.ranks) { writer.number(rank); }
  return writer.take();
}

WaitMessage decode_wait(std::string_view payload) {
  PayloadReader reader{payload};
  WaitMessage wait;
  wait.waits = flag_from(reader);
  wait.owed = flag_from(reader) ? Owed::data : Owed::call;
  while (!reader.empty()) { wait.ranks.push_back(rank_from(reader)); }
  return wait;
}

}  // namespace tessera::comm
