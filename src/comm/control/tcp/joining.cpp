#include "comm/control/tcp/joining.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control/tcp/listening.hpp"
#include "comm/control/tcp/messages.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

// The texts of all ranks arrive in one frame.
constexpr std::size_t kMostFrameBytes = UINT32_MAX;
// Waited beyond the coordinator's own deadline, for its message about missing ranks.
constexpr auto kGrace = 2s;
constexpr auto kRetry = 100ms;

/// "process 4711 on node3".
std::string describe_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", ::getpid(), host.data());
}

Frame hello(const JobPlace& place) {
  Frame frame;
  frame.type = FrameType::hello;
  frame.rank = place.rank;
  frame.payload = encode(HelloMessage{.size = place.job.size,
                                      .build = place.job.build,
                                      .token = place.job.token,
                                      .secret = place.job.secret,
                                      .who = describe_process()});
  return frame;
}

/// Waits for the next frame until `end`. Returns false, with the reason in `why`, without one.
bool hear(CoordinatorConnection& connection, WaitClock& clock, WaitClock::Time end, Frame& frame,
          std::string& why) {
  std::array<char, 4096> buffer;
  while (!connection.in.next(frame)) {
    if (!wait_for(connection.socket, POLLIN, clock, end)) {
      why = "the program that listens there does not answer";
      return false;
    }
    const auto count = connection.socket.receive_some(buffer.data(), buffer.size());
    if (!count) {
      why = "the program that listens there has closed the connection";
      return false;
    }
    if (!connection.in.add({buffer.data(), *count})) {
      why = "the program that listens there is not rank 0 of a job";
      return false;
    }
  }
  return true;
}

/// Identifies this process, and waits for the coordinator's welcome until `end`; for its first word
/// until `first`. Returns false, with the reason in `why`, if this attempt failed and another may
/// succeed.
bool enter(const JobPlace& place, CoordinatorConnection& connection, WaitClock& clock,
           WaitClock::Time first, WaitClock::Time end, std::string& why) {
  connection.in = FrameReader{kMostFrameBytes};
  Outbox out;
  append(out.bytes(), hello(place));
  (void)out.send_over(
      connection.socket);  // a few hundred bytes: sent whole, or the connection is lost
  Frame frame;
  if (!hear(connection, clock, first, frame, why)) { return false; }
  if (frame.type == FrameType::known && !hear(connection, clock, end, frame, why)) { return false; }
  if (frame.type == FrameType::welcome) { return true; }
  why = frame.payload;
  if (frame.type != FrameType::refuse) { return false; }
  if (frame.sequence == 0) { throw ConfigError{why}; }
  why += fmt::format(" ({})", place.job.secret_from);
  return false;
}

std::vector<HostPort> all_of(const JobPlace& place) {
  std::vector<HostPort> all{place.meet};
  all.insert(all.end(), place.others.begin(), place.others.end());
  return all;
}

/// "192.0.2.7:29500, 198.51.100.7:29500".
std::string text_of(const std::vector<HostPort>& places) {
  std::vector<std::string> texts;
  for (const HostPort& each : places) { texts.push_back(each.text()); }
  return fmt::format("{}", fmt::join(texts, ", "));
}

CoordinatorConnection join_own_coordinator(const JobPlace& place, Socket listener,
                                           const RankNames& names,
                                           std::chrono::milliseconds patience) {
  if (!listener) { listener = listen_at(place.meet); }
  auto [mine, theirs] = socket_pair();
  CoordinatorConnection own{std::make_unique<Coordinator>(place.job, names, std::move(listener),
                                                          std::move(theirs), patience),
                            std::move(mine), FrameReader{kMostFrameBytes}, place.meet};
  std::string why;
  WaitClock clock{patience + kGrace};
  const WaitClock::Time end = clock.now() + patience + kGrace;
  if (!enter(place, own, clock, end, end, why)) { throw CommError{why}; }
  return own;
}

}  // namespace

CoordinatorConnection join_job(const JobPlace& place, Socket listener, const RankNames& names,
                               std::chrono::milliseconds patience) {
  if (place.rank == 0) { return join_own_coordinator(place, std::move(listener), names, patience); }
  WaitClock clock{patience};
  const WaitClock::Time end = clock.now() + patience;
  CoordinatorConnection connection{nullptr, {}, FrameReader{kMostFrameBytes}};
  const auto take = [&](Socket socket, std::string& why) {
    connection.socket = std::move(socket);
    const WaitClock::Time last = end + kGrace;
    const auto first = place.others.empty() ? last : std::min(last, clock.now() + kAttempt);
    return enter(place, connection, clock, first, last, why);
  };
  for (;;) {
    std::vector<std::string> problems;
    for (const HostPort& at : all_of(place)) {
      std::string why = "no answer";
      connection.at = at;
      if (connect_to(at, clock, end, why, take)) { return connection; }
      problems.push_back(why);
    }
    if (clock.now() + kRetry > end) {
      throw CommError{fmt::format(
          "rank {} did not find rank 0 at {} within {} ms ({}); check whether rank 0 runs and "
          "listens there: {}",
          place.rank, text_of(all_of(place)), patience.count(), fmt::join(problems, "; "),
          place.job.remedy)};
    }
    std::this_thread::sleep_for(std::min<WaitClock::Duration>(kRetry, clock.tick()));
  }
}

}  // namespace tessera::comm
