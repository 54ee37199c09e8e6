#include "comm/control/failure_texts.hpp"

#include <fmt/format.h>

namespace tessera::comm {
namespace {

constexpr std::string_view kSameCalls =
    "every rank must make the same collective calls in the same order";
constexpr std::string_view kStopped =
    "check whether the process, its machine or the network has stopped";

}  // namespace

std::string call_text(std::string_view what, std::string_view channel, std::uint64_t sequence) {
  return fmt::format("{} (channel {}, sequence {})", what, channel, sequence);
}

std::string batch_text(std::string_view channel, std::uint64_t sequence) {
  return call_text("the batch", channel, sequence);
}

std::string missing_text(const RankNames& names, std::string_view call, int rank,
                         std::chrono::milliseconds waited, const std::vector<int>& missing) {
  return fmt::format("{}: {} waited {} ms for {}, which did not call it; {}", call, names.of(rank),
                     waited.count(), names.of(missing), kSameCalls);
}

std::string held_up_text(const RankNames& names, std::string_view call, int rank,
                         std::chrono::milliseconds waited, const std::vector<int>& missing,
                         const HeldUp& by) {
  const std::string what =
      by.owed == Owed::data
          ? fmt::format("called {} and then moved no data; {}", by.where, kStopped)
          : fmt::format("did not call {}; {}", by.where, kSameCalls);
  return fmt::format("{}: {} waited {} ms{}, held up by {}, which {}", call, names.of(rank),
                     waited.count(), missing.empty() ? "" : " for " + names.of(missing),
                     names.of(by.guilty), what);
}

std::string stopped_text(const RankNames& names, std::string_view call, int rank,
                         std::chrono::milliseconds waited, const std::vector<int>& stopped) {
  return fmt::format("{}: {} waited {} ms for {}, which called it and then moved no data; {}", call,
                     names.of(rank), waited.count(), names.of(stopped), kStopped);
}

std::string ended_text(const RankNames& names, std::string_view call, int rank, int ended) {
  return fmt::format("{}: {} waits for {}, whose program has ended; {}", call, names.of(rank),
                     names.of(ended), kSameCalls);
}

std::string withdrawn_text(std::string_view call) {
  return fmt::format("{} was withdrawn", call);
}

std::string broken_text(std::string_view who, std::string_view problem) {
  return fmt::format(
      "{} sent an invalid message to other ranks: {}; check whether another program writes to its "
      "connection, otherwise this is a bug in the library",
      who, problem);
}

std::string disagreement_text(std::string_view channel, std::uint64_t sequence,
                              std::string_view difference) {
  return fmt::format("ranks disagree on collective {} of channel {}: {}", sequence, channel,
                     difference);
}

}  // namespace tessera::comm
