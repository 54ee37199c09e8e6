#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/frame.hpp"

namespace tessera::comm {

// The payloads of frames, written and read only here. Reading is bounded by the bytes present, and
// throws CommError if they are not such a message.

/// The frame `hello`: identifies a process.
struct HelloMessage {
  std::int64_t size = 0;  ///< the number of processes it was started with
  std::string build = {};
  std::string token = {};
  std::string secret = {};
  std::string who = {};  ///< "process 4711 on node3"
};
[[nodiscard]] std::string encode(const HelloMessage& hello);
[[nodiscard]] HelloMessage decode_hello(std::string_view payload);

/// The frame `group`.
struct GroupMessage {
  std::string name = {};
  std::vector<int> members = {};
};
[[nodiscard]] std::string encode(const GroupMessage& group);
[[nodiscard]] GroupMessage decode_group(std::string_view payload);

/// Reads the frame `texts`, with one text for each of `ranks` ranks.
[[nodiscard]] std::vector<std::string> decode_texts(std::string_view payload, std::size_t ranks);

/// The frame `answer`.
struct AnswerMessage {
  std::vector<int> missing = {};  ///< missing in the call
  HeldUp by = {};  ///< ranks that hold these up, or, if none is missing, one that made the call
};
[[nodiscard]] std::string encode(const AnswerMessage& answer);
[[nodiscard]] AnswerMessage decode_answer(std::string_view payload);

/// The frame `at_end`: the number of calls that a rank has made. A series without an entry has
/// none.
using CallCounts = std::map<CallSeries, std::uint64_t>;
[[nodiscard]] std::string encode(const CallCounts& counts);
[[nodiscard]] CallCounts decode_counts(std::string_view payload);

/// The frames `ask` and `held`: what a rank waits for in a call.
struct WaitMessage {
  bool waits = true;            ///< `held`: false once it waits no longer
  Owed owed = Owed::call;       ///< what the ranks owe it
  std::vector<int> ranks = {};  ///< empty: the coordinator knows who has not made the call
};
[[nodiscard]] std::string encode(const WaitMessage& wait);
[[nodiscard]] WaitMessage decode_wait(std::string_view payload);

}  // namespace tessera::comm
