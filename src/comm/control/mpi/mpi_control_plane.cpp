#include "comm/control/mpi/mpi_control_plane.hpp"

#include <algorithm>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/control/aborted.hpp"
#include "comm/control/failure_message.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/wait_clock.hpp"
#include "comm/control/wait_graph.hpp"
#include "comm/mpi/mpi_tags.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

// When a rank is checked for the end of its run. Before that, waiting costs nothing extra.
constexpr std::chrono::milliseconds kStill{300};
// A rank that ends has sent all that it owes, but MPI promises no order between its communicators.
// Messages in transit arrive within this many looks (in sleeps, some tenths of a second; not
// measured in time, as this process may have been stopped).
constexpr int kLooks = 1000;

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MpiControlPlane::MpiControlPlane(MpiProcess& process, std::chrono::milliseconds deadline)
    : ControlPlane{process.rank(), process.size(), deadline},
      process_{process},
      everyone_{first_ranks(process.size())},
      telling_{process, static_cast<std::size_t>(process.size())},
      telling_late_{process, static_cast<std::size_t>(process.size())} {}

class MpiControlPlane::Deserters {
 public:
  Deserters(MpiProcess& process, const MpiRequests& requests) noexcept
      : process_{process}, requests_{requests} {}

  void something_moved() noexcept { looks_ = 0; }
  /// A rank that ended its run a while ago and still owes a message. Nothing has moved for `still`.
  [[nodiscard]] std::optional<int> find(WaitClock::Duration still) {
    if (still < kStill) { return {}; }
    const std::optional<int> peer = at_end();
    if (!peer || ++looks_ < kLooks) { return {}; }
    return peer;
  }

 private:
  // The first message of meet_at_end announces the end of a rank's run. It is only probed here, and
  // left for this rank's own end.
  [[nodiscard]] std::optional<int> at_end() {
    const MpiCalls calls{process_};
    if (!waits_from(MPI_ANY_SOURCE)) { return {}; }
    for (const int peer : requests_.peers()) {
      if (waits_from(peer)) { return peer; }
    }
    return {};
  }
  [[nodiscard]] bool waits_from(int source) const {
    int waiting = 0;
    mpi_check(MPI_Iprobe(source, kEndTag, process_.control(), &waiting, MPI_STATUS_IGNORE),
              "MPI_Iprobe");
    return waiting != 0;
  }

  MpiProcess& process_;
  const MpiRequests& requests_;
  int looks_ = 0;
};

class MpiControlPlane::Stillness {
 public:
  explicit Stillness(std::chrono::milliseconds patience)
      : patience_{patience}, clock_{patience}, moved_{clock_.now()}, looked_{moved_} {}

  // After a long suspension this rank starts its quick looks again: messages may have arrived.
  void look() noexcept {
    looked_ = clock_.now();
    if (clock_.left_out() > std::max(patience_ / 2, kTurn)) { looks_ = 0; }
  }
  void something_moved() noexcept {
    looked_ = moved_ = clock_.now();
    looks_ = 0;
  }
  /// Pauses between two looks at what has arrived.
  void pause() noexcept {
    if (begins()) {
      ++looks_;
      std::this_thread::yield();
      return;
    }
    const int doublings = std::min((looks_++ - kYields) / kSameSleeps, kDoublings);
    std::this_thread::sleep_for(kSleep * (1 << doublings));
  }
  /// Whether there were only a few looks so far, none after a sleep.
  [[nodiscard]] bool begins() const noexcept { return looks_ < kYields; }
  /// The time up to the last look.
  [[nodiscard]] WaitClock::Duration so_far() const noexcept { return looked_ - moved_; }
  [[nodiscard]] bool too_long() const noexcept { return so_far() > patience_; }
  /// The same for a report.
  [[nodiscard]] std::chrono::milliseconds waited() const noexcept {
    return std::min(std::chrono::duration_cast<std::chrono::milliseconds>(so_far()), patience_);
  }

 private:
  static constexpr int kYields = 50;
  static constexpr int kSameSleeps = 20;
  static constexpr int kDoublings = 4;
  static constexpr std::chrono::microseconds kSleep{20};

  const std::chrono::milliseconds patience_;
  WaitClock clock_;
  WaitClock::Time moved_;
  WaitClock::Time looked_;
  int looks_ = 0;
};

void MpiControlPlane::wait(MpiRequests& requests, const MpiWait& why) {
  Stillness still{why.at_end() ? end_deadline() : deadline()};
  Deserters deserters{process_, requests};
  while (!requests.done()) {
    failure().check(rank());
    bool any = false;
    {
      const MpiCalls calls{process_};
      any = requests.test();
      if (!requests.done()) { hear(); }
    }
    if (requests.done()) { return; }
    failure().check(rank());
    why.check();
    if (any) {
      still.something_moved();
      deserters.something_moved();
      continue;
    }
    still.look();
    if (still.too_long() || another_waits_) { report_late(why, requests.peers(), still); }
    if (const auto peer = why.at_end() ? std::nullopt : deserters.find(still.so_far())) {
      fail_and_throw(why.ended(*peer), rank());
    }
    still.pause();
  }
}

std::vector<std::string> MpiControlPlane::exchange(const MpiRoute& route,
                                                   const std::string& message, const MpiWait& why) {
  const std::size_t ranks = route.members.size();
  const auto me = static_cast<std::size_t>(route.rank);
  std::vector<std::uint64_t> bytes(ranks, message.size());
  const std::uint64_t own_bytes = message.size();
  std::vector<std::string> texts(ranks);
  MpiRequests requests{process_, 2 * ranks};
  const auto with_each_peer = [&](const auto& post) {
    const MpiCalls calls{process_};
    for (std::size_t i = 0; i < ranks; ++i) {
      if (i != me) { post(i, route.members[i]); }
    }
  };

  with_each_peer([&](std::size_t i, int peer) {
    requests.receive(route.comm, &bytes[i], sizeof bytes[i], peer, route.tag);
    requests.send(route.comm, &own_bytes, sizeof own_bytes, peer, route.tag);
  });
  wait(requests, why);

  for (std::size_t i = 0; i < ranks; ++i) { texts[i].resize(bytes[i]); }
  with_each_peer([&](std::size_t i, int peer) {
    requests.receive(route.comm, texts[i].data(), texts[i].size(), peer, route.tag);
    requests.send(route.comm, message.data(), message.size(), peer, route.tag);
  });
  wait(requests, why);
  texts[me] = message;
  return texts;
}

void MpiControlPlane::report_late(const MpiWait& why, const std::vector<int>& missing,
                                  Stillness& still) {
  const bool after_deadline = another_waits_ && still.begins();
  if (!begin_report({missing, after_deadline, why.late(still.waited(), missing)})) {
    // Another thread of this rank has done so.
    while (!failed()) { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
    failure().check(rank());
  }
  Verdict found{.reporter = rank(), .guilty = missing, .text = {}};
  try {
    tell_late();
    hear_others_that_wait(still);
    found = verdict();
  } catch (const std::bad_alloc&) {  // another thread waits for the result
  }
  // A rank that makes the call now learns what was settled without it.
  fail_and_throw(found.reporter == rank() ? why.late(still.waited(), found.guilty) : found.text,
                 found.reporter);
}

/// Returns false if this rank has already reported late.
bool MpiControlPlane::begin_report(const LateReport& report) {
  const std::scoped_lock lock{late_lock_};
  return late_.try_emplace(rank(), report).second;
}

void MpiControlPlane::hear_others_that_wait(Stillness& still) noexcept {
  Patience patience{kTurn};
  try {
    while (!failed() && !patience.over()) {
      listen();
      still.look();  // this time counts as waited for too
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  } catch (const std::exception&) {  // MPI has failed: no message can arrive
  }
}

MpiControlPlane::Verdict MpiControlPlane::verdict() const {
  const std::scoped_lock lock{late_lock_};
  WaitGraph graph;
  for (const auto& [who, report] : late_) {
    graph.calls.push_back({report.missing, {who}, report.after_deadline});
  }
  const Blame blame = first_blame(graph);
  const int reporter = graph.calls[blame.call].waiting.front();
  return {reporter, blame.ranks, late_.at(reporter).text};
}

void MpiControlPlane::listen() {
  const MpiCalls calls{process_};
  hear();
}

void MpiControlPlane::tell(const Failure& failure) {
  reason_ = encode(FailureMessage{.status = failure.status, .missing = {}, .text = failure.text});
  send_to_all(telling_, reason_);
}

void MpiControlPlane::tell_late() noexcept {
  try {
    {
      const std::scoped_lock lock{late_lock_};
      const LateReport& mine = late_.at(rank());
      waiting_ = encode(FailureMessage{.missing = mine.missing,
                                       .after_deadline = mine.after_deadline ? 1 : 0,
                                       .text = mine.text});
    }
    send_to_all(telling_late_, waiting_);
  } catch (const std::exception&) {  // the others reach their own deadlines
  }
}

void MpiControlPlane::send_to_all(MpiRequests& requests, const std::string& message) {
  const MpiCalls calls{process_};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) { continue; }
    requests.send(process_.control(), message.data(), message.size(), peer, kFailureTag);
  }
  (void)requests.test();
}

/// Reads all pending messages, which may be two of every rank. Called within MpiCalls.
void MpiControlPlane::hear() {
  while (hear_next()) {}
}

bool MpiControlPlane::hear_next() {
  int waiting = 0;
  MPI_Status from{};
  mpi_check(MPI_Iprobe(MPI_ANY_SOURCE, kFailureTag, process_.control(), &waiting, &from),
            "MPI_Iprobe");
  if (waiting == 0) { return false; }
  int bytes = 0;
  mpi_check(MPI_Get_count(&from, MPI_BYTE, &bytes), "MPI_Get_count");
  std::string message(static_cast<std::size_t>(bytes), '\0');
  mpi_check(MPI_Recv(message.data(), bytes, MPI_BYTE, from.MPI_SOURCE, kFailureTag,
                     process_.control(), MPI_STATUS_IGNORE),
            "MPI_Recv");
  take_in(from.MPI_SOURCE, message);
  return true;
}

void MpiControlPlane::take_in(int source, const std::string& message) {
  auto [status, missing, after_deadline, text] = decode_failure(message);
  if (missing.empty()) { return failure().hear(source, text, status); }
  // This rank waits, and nothing is settled yet.
  const std::scoped_lock lock{late_lock_};
  late_.try_emplace(source, LateReport{std::move(missing), after_deadline != 0, std::move(text)});
  another_waits_ = true;
}

}  // namespace tessera
