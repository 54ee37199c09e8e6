// Messages of four joined ranks to the coordinator, and its answers. Whatever one rank sends, the
// others can read their answers.
#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "comm/control/tcp/job_talk.hpp"
#include "comm/control/tcp/messages.hpp"
#include "fuzz/fuzz.hpp"

namespace tessera::fuzz {
namespace {

constexpr int kRanks = 4;

void check_ranks(const std::vector<int>& ranks) {
  holds(std::ranges::all_of(ranks, [](int rank) { return rank >= 0 && rank < kRanks; }),
        "ranks that are named are of the job");
}

// Checks that ranks can read a frame that the coordinator sends them.
void check_told(const std::vector<int>& ranks, const comm::Frame& frame) {
  check_ranks(ranks);
  holds(std::ranges::is_sorted(ranks), "ranks are told in order");
  holds(frame.rank >= 0 && frame.rank < kRanks, "a frame is of a rank of the job");
  switch (frame.type) {
    case comm::FrameType::texts:
      holds(comm::decode_texts(frame.payload, ranks.size()).size() == ranks.size(),
            "all texts are told");
      return;
    case comm::FrameType::answer: {
      const comm::AnswerMessage answer = comm::decode_answer(frame.payload);
      check_ranks(answer.missing);
      return check_ranks(answer.by.guilty);
    }
    case comm::FrameType::at_end:
      return (void)comm::decode_counts(frame.payload);
    case comm::FrameType::differ:
      return is_message(frame.payload);
    default:
      holds(frame.type == comm::FrameType::explain || frame.type == comm::FrameType::failure,
            "ranks are told what they understand");
  }
}

comm::Frame frame_of(Input& input) {
  comm::Frame frame;
  frame.type = static_cast<comm::FrameType>(input.byte() % 16);
  const auto kind = static_cast<comm::CallKind>(input.byte() % comm::kCallKinds);
  frame.call = {kind, input.byte()};
  frame.sequence = input.byte();
  const std::string_view payload = input.text();
  frame.payload = payload;
  return frame;
}

}  // namespace
}  // namespace tessera::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tessera;
  fuzz::Input input{data, size};
  bool telling = false;
  const comm::RankNames names;
  comm::JobTalk talk{fuzz::kRanks, names,
                     [&](const std::vector<int>& ranks, const comm::Frame& frame) {
                       // A rank's failure to read must not count as the sender's error.
                       telling = true;
                       fuzz::check_told(ranks, frame);
                       telling = false;
                     }};
  std::array<bool, fuzz::kRanks> broken{};
  std::chrono::steady_clock::time_point now{};
  while (!input.empty()) {
    const int rank = input.byte() % fuzz::kRanks;
    comm::Frame frame = fuzz::frame_of(input);
    bool& is_broken = broken[static_cast<std::size_t>(rank)];
    if (is_broken) { continue; }  // the rank's connection is closed
    is_broken = fuzz::refuses<CommError, ContractError>([&] { talk.hear(rank, frame); });
    fuzz::holds(!telling, "ranks can read what they are told");
    now += std::chrono::milliseconds{15};
    talk.settle(now);
  }
  return 0;
}
