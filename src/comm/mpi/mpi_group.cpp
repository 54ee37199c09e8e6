#include "comm/mpi/mpi_group.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "comm/aborted.hpp"
#include "comm/failure_texts.hpp"
#include "comm/job_end.hpp"
#include "comm/mpi/mpi_tags.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using Clock = std::chrono::steady_clock;

// A reason leaves at once, whether or not its receiver is in MPI: libraries hold back messages
// above a limit, which is 4 KiB at least where it is known.
constexpr std::size_t kReasonBytes = 3000;
constexpr std::size_t kMostNamed = 200;  // ranks, beside it

// What all ranks find they find within a moment of each other. And for so long ranks listen to who
// else waits before one of them reports.
constexpr std::chrono::milliseconds kTurn{300};
// When a rank is looked for at the end of its run. Until then waiting costs nothing more.
constexpr std::chrono::milliseconds kStill{300};
// A rank that ends has sent before all that it owes, but MPI promises no order between its
// communicators: what is under way arrives within so many looks (in sleeps, some tenths of a
// second; not counted in time, as this process may have been stopped).
constexpr int kLooks = 1000;

std::vector<int> first_ranks(int count) {
  std::vector<int> ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// What ranks tell each other of a failure.
struct FailureMessage {
  std::int32_t status = kCommStatus;
  std::vector<int> missing;  ///< for whom its sender waits; none: it has failed
  std::int32_t came_after = 0;
  std::string text;
};

void append(std::string& message, std::int32_t number) {
  message.append(reinterpret_cast<const char*>(&number), sizeof number);
}

// Its length is bounded: of very many ranks the first are named.
std::string message_of(const FailureMessage& said) {
  const std::size_t named = std::min(said.missing.size(), kMostNamed);
  std::string message;
  append(message, said.status);
  append(message, said.came_after);
  append(message, static_cast<std::int32_t>(named));
  for (std::size_t i = 0; i < named; ++i) { append(message, said.missing[i]); }
  return message.append(said.text, 0, kReasonBytes);
}

FailureMessage read_message(const std::string& message) {
  std::size_t at = 0;
  const auto number = [&] {
    std::int32_t value = 0;
    if (at + sizeof value > message.size()) { return value; }
    std::memcpy(&value, message.data() + at, sizeof value);
    at += sizeof value;
    return value;
  };
  FailureMessage read;
  read.status = number();
  read.came_after = number();
  for (std::int32_t left = number(); left > 0 && at < message.size(); --left) {
    read.missing.push_back(number());
  }
  read.text = message.substr(at);
  return read;
}

}  // namespace

MpiGroup::MpiGroup(MpiProcess& process, std::chrono::milliseconds deadline)
    : process_{process},
      deadline_{std::min(deadline, kLongestDeadline)},
      everyone_{first_ranks(process.size())},
      telling_{process, static_cast<std::size_t>(process.size())},
      telling_late_{process, static_cast<std::size_t>(process.size())} {}

class MpiGroup::Deserters {
 public:
  Deserters(MpiProcess& process, const MpiRequests& requests) noexcept
      : process_{process}, requests_{requests} {}

  void something_moved() noexcept { looks_ = 0; }
  /// A rank that came to the end of its run a while ago and still owes. Nothing has moved for
  /// `still`.
  [[nodiscard]] std::optional<int> find(Clock::duration still) {
    if (still < kStill) { return {}; }
    const std::optional<int> peer = at_end();
    if (!peer || ++looks_ < kLooks) { return {}; }
    return peer;
  }

 private:
  // The first message of meet_at_end is the word of a rank's end. It stays where it is, for this
  // rank's own end.
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

class MpiGroup::Stillness {
 public:
  explicit Stillness(std::chrono::milliseconds patience) noexcept : patience_{patience} {}

  void look() noexcept {
    const Clock::time_point before = std::exchange(looked_, Clock::now());
    if (looked_ - before > std::max(patience_ / 2, kTurn)) { something_moved(); }
  }
  void something_moved() noexcept {
    looked_ = moved_ = Clock::now();
    looks_ = 0;
  }
  /// Between two looks at what has arrived.
  void pause() noexcept {
    if (begins()) {
      ++looks_;
      std::this_thread::yield();
      return;
    }
    const int doublings = std::min((looks_++ - kYields) / kSameSleeps, kDoublings);
    std::this_thread::sleep_for(kSleep * (1 << doublings));
  }
  /// Only a few looks so far, none after a sleep.
  [[nodiscard]] bool begins() const noexcept { return looks_ < kYields; }
  /// Up to the last look.
  [[nodiscard]] Clock::duration so_far() const noexcept { return looked_ - moved_; }
  [[nodiscard]] bool too_long() const noexcept { return so_far() > patience_; }
  /// What a report says of it, up to now.
  [[nodiscard]] std::chrono::milliseconds waited() const noexcept {
    const Clock::duration all = Clock::now() - moved_;
    return std::min(std::chrono::duration_cast<std::chrono::milliseconds>(all), patience_);
  }

 private:
  static constexpr int kYields = 50;
  static constexpr int kSameSleeps = 20;
  static constexpr int kDoublings = 4;
  static constexpr std::chrono::microseconds kSleep{20};

  const std::chrono::milliseconds patience_;
  Clock::time_point moved_ = Clock::now();
  Clock::time_point looked_ = moved_;
  int looks_ = 0;
};

void MpiGroup::wait(MpiRequests& requests, const MpiWait& why) {
  Stillness still{(why.at_end() ? 2 : 1) * deadline_};
  Deserters deserters{process_, requests};
  while (!requests.done()) {
    check_failure();
    bool any = false;
    {
      const MpiCalls calls{process_};
      any = requests.test();
      if (!requests.done()) { hear(); }
    }
    if (requests.done()) { return; }
    check_failure();
    why.check();
    if (any) {
      still.something_moved();
      deserters.something_moved();
      continue;
    }
    still.look();  // after whatever this process may have been stopped in
    if (still.too_long() || another_waits_) { report_late(why, requests.peers(), still); }
    if (const auto peer = why.at_end() ? std::nullopt : deserters.find(still.so_far())) {
      fail_and_throw(why.ended(*peer), rank());
    }
    still.pause();
  }
}

std::vector<std::string> MpiGroup::exchange(const MpiRoute& route, const std::string& message,
                                            const MpiWait& why) {
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

void MpiGroup::report_late(const MpiWait& why, const std::vector<int>& missing,
                           const Stillness& still) {
  const bool came_after = another_waits_ && still.begins();
  if (!begin_report({missing, came_after, why.late(still.waited(), missing)})) {
    // Another thread of this rank has.
    while (!failed_) { std::this_thread::sleep_for(std::chrono::milliseconds{1}); }
    check_failure();
  }
  tell_late();
  listen();
  const Verdict found = verdict();
  if (found.reporter == rank()) {
    // A rank that comes now learns what has been settled without it.
    if (set_failure(why.late(still.waited(), found.guilty), kCommStatus, Source::this_rank)) {
      tell();
    }
  } else {
    (void)set_failure(found.text, kCommStatus, Source::another_rank);
  }
  check_failure();
  throw Aborted{found.text};  // not reached: there is a failure
}

/// False if this rank has said so already.
bool MpiGroup::begin_report(const LateReport& report) {
  const std::scoped_lock lock{failure_lock_};
  return late_.try_emplace(rank(), report).second;
}

void MpiGroup::listen() noexcept {
  const auto end = Clock::now() + kTurn;
  try {
    while (!failed_ && Clock::now() < end) {
      {
        const MpiCalls calls{process_};
        hear();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  } catch (const std::exception&) {  // MPI has failed: nobody will be heard
  }
}

MpiGroup::Verdict MpiGroup::verdict() const {
  const std::scoped_lock lock{failure_lock_};
  const auto says_nothing = [&](int rank) { return !late_.contains(rank); };
  const auto came_after = [&](int rank) { return late_.at(rank).came_after; };
  for (const auto& [who, report] : late_) {
    std::vector<int> guilty;
    std::ranges::copy_if(report.missing, std::back_inserter(guilty), says_nothing);
    if (!guilty.empty()) { return {who, guilty, report.text}; }
  }
  for (const auto& [who, report] : late_) {
    std::vector<int> guilty;
    std::ranges::copy_if(report.missing, std::back_inserter(guilty), came_after);
    if (!report.came_after && !guilty.empty()) { return {who, guilty, report.text}; }
  }
  const auto& [who, report] = *late_.begin();  // all wait for each other
  return {who, report.missing, report.text};
}

void MpiGroup::abort(std::string_view reason, int status) noexcept {
  if (set_failure(reason, status, Source::caller)) { tell(); }
}

void MpiGroup::fail_and_throw(const std::string& text, int reporter) {
  const bool for_another = reporter != rank();
  const auto source = for_another ? Source::another_rank : Source::this_rank;
  if (set_failure(text, kCommStatus, source) && !for_another) { tell(); }
  check_failure();
  throw CommError{text};
}

void MpiGroup::check_alive() {
  if (!failed_ && size() > 1) {
    const MpiCalls calls{process_};
    hear();
  }
  check_failure();
}

void MpiGroup::check_failure() const {
  if (!failed_) { return; }
  const std::scoped_lock lock{failure_lock_};
  if (failure_->source == Source::this_rank) { throw CommError{failure_->text}; }
  throw Aborted{failure_->text};
}

void MpiGroup::give_way() noexcept {
  const auto end = Clock::now() + kTurn;
  try {
    while (rank() != 0 && !another_reports() && Clock::now() < end) {
      {
        const MpiCalls calls{process_};
        hear();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  } catch (const std::exception&) {  // MPI has failed: nobody will be heard
  }
}

bool MpiGroup::another_reports() const noexcept {
  const std::scoped_lock lock{failure_lock_};
  return failure_ && failure_->source == Source::another_rank;
}

int MpiGroup::told_status() const noexcept {
  const std::scoped_lock lock{failure_lock_};
  return failure_ && failure_->source == Source::another_rank ? failure_->status : 0;
}

/// True if it is the first.
bool MpiGroup::set_failure(std::string_view text, int status, Source source) noexcept {
  const std::scoped_lock lock{failure_lock_};
  if (failure_) { return false; }
  failure_.emplace();
  failure_->status = status;
  failure_->source = source;
  try {
    failure_->text = text.substr(0, kReasonBytes);
  } catch (const std::bad_alloc&) {  // fail without the text
  }
  failed_ = true;
  return true;
}

void MpiGroup::tell() noexcept {
  try {
    {  // another thread may hear of a failure that comes before this one
      const std::scoped_lock lock{failure_lock_};
      reason_ = message_of({.status = failure_->status, .missing = {}, .text = failure_->text});
    }
    send_to_all(telling_, reason_);
  } catch (const std::exception&) {  // the end of the process tells them
  }
}

void MpiGroup::tell_late() noexcept {
  try {
    {
      const std::scoped_lock lock{failure_lock_};
      const LateReport& mine = late_.at(rank());
      waiting_ = message_of(
          {.missing = mine.missing, .came_after = mine.came_after ? 1 : 0, .text = mine.text});
    }
    send_to_all(telling_late_, waiting_);
  } catch (const std::exception&) {  // the others come to their own deadlines
  }
}

void MpiGroup::send_to_all(MpiRequests& requests, const std::string& message) {
  const MpiCalls calls{process_};
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == rank()) { continue; }
    requests.send(process_.control(), message.data(), message.size(), peer, kFailureTag);
  }
  (void)requests.test();
}

/// All that waits, which may be two messages of every rank. Within MpiCalls.
void MpiGroup::hear() {
  while (hear_next()) {}
}

bool MpiGroup::hear_next() {
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

void MpiGroup::take_in(int source, const std::string& message) {
  auto [status, missing, came_after, text] = read_message(message);
  if (!missing.empty()) {  // it waits, and nothing has been settled
    const std::scoped_lock lock{failure_lock_};
    late_.try_emplace(source, LateReport{std::move(missing), came_after != 0, std::move(text)});
    another_waits_ = true;
    return;
  }
  if (set_failure(text, status, Source::another_rank)) { return; }
  const std::scoped_lock lock{failure_lock_};
  if (source < rank()) {  // who tells has found it by itself
    failure_->text = std::move(text);
    failure_->status = status;
    failure_->source = Source::another_rank;
  }
}

}  // namespace tessera
