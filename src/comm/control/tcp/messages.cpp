#include "comm/control/tcp/messages.hpp"

#include <iterator>
#include <utility>

namespace tessera {

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
  return hello;
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
  while (!reader.empty()) { group.members.push_back(static_cast<int>(reader.number())); }
  return group;
}

std::vector<std::string> decode_texts(std::string_view payload, std::size_t /*ranks*/) {
  PayloadReader reader{payload};
  std::vector<std::string> texts;
  while (!reader.empty()) { texts.push_back(reader.text()); }
  return texts;
}

std::string encode(const AnswerMessage& answer) {
  PayloadWriter writer;
  for (const std::vector<int>* const ranks : {&answer.missing, &answer.by.guilty}) {
    writer.number(std::ssize(*ranks));
    for (const int rank : *ranks) { writer.number(rank); }
  }
  return writer.text(answer.by.where).take();
}

AnswerMessage decode_answer(std::string_view payload) {
  PayloadReader reader{payload};
  AnswerMessage answer;
  for (std::vector<int>* const ranks : {&answer.missing, &answer.by.guilty}) {
    for (std::int64_t left = reader.number(); left > 0; --left) {
      ranks->push_back(static_cast<int>(reader.number()));
    }
  }
  answer.by.where = reader.text();
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
    const auto kind = static_cast<CallKind>(reader.number());
    const auto group = static_cast<std::uint64_t>(reader.number());
    counts[{kind, group}] = static_cast<std::uint64_t>(reader.number());
  }
  return counts;
}

std::string encode_held(bool held) {
  return PayloadWriter{}.number(held ? 1 : 0).take();
}

bool decode_held(std::string_view payload) {
  return PayloadReader{payload}.number() != 0;
}

}  // namespace tessera
