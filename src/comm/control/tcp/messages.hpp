#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/frame.hpp"

namespace tessera {

// What the payloads of frames say, written and read here alone. What is read is bounded by the
// bytes that are there; CommError where they are no such message.

/// Of a frame `hello`: who a process is.
struct HelloMessage {
  std::int64_t size = 0;  ///< processes that it was started as one of
  std::string build = {};
  std::string token = {};
  std::string secret = {};
  std::string who = {};  ///< "process 4711 on node3"
};
[[nodiscard]] std::string encode(const HelloMessage& hello);
[[nodiscard]] HelloMessage decode_hello(std::string_view payload);

/// Of a frame `group`.
struct GroupMessage {
  std::string name = {};
  std::vector<int> members = {};
};
[[nodiscard]] std::string encode(const GroupMessage& group);
[[nodiscard]] GroupMessage decode_group(std::string_view payload);

/// Of a frame `texts`, and as many as `ranks` have said.
[[nodiscard]] std::vector<std::string> decode_texts(std::string_view payload, std::size_t ranks);

/// Of a frame `answer`.
struct AnswerMessage {
  std::vector<int> missing = {};  ///< in the call
  HeldUp by = {};  ///< ranks that hold these up, or, if none is missing, one that has come
};
[[nodiscard]] std::string encode(const AnswerMessage& answer);
[[nodiscard]] AnswerMessage decode_answer(std::string_view payload);

/// Of a frame `at_end`: how many calls a rank has made. None: 0.
using CallCounts = std::map<CallSeries, std::uint64_t>;
[[nodiscard]] std::string encode(const CallCounts& counts);
[[nodiscard]] CallCounts decode_counts(std::string_view payload);

/// Of a frame `held`: whether the rank is.
[[nodiscard]] std::string encode_held(bool held);
[[nodiscard]] bool decode_held(std::string_view payload);

}  // namespace tessera
