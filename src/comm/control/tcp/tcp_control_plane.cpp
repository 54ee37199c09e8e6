#include "comm/control/tcp/tcp_control_plane.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <new>
#include <tuple>
#include <utility>

#include "base/process_limits.hpp"
#include "comm/control/tcp/messages.hpp"
#include "comm/control/wait_clock.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

constexpr auto kAnswer = 2s;
constexpr auto kLastWords = 1s;
// Batches are reported at most this long after they were issued.
constexpr int kTickMs = 20;

std::string lost_text(const std::string& rank, const std::string& who) {
  return fmt::format(
      "{} ({}) has left in the middle of the run: it was killed, has crashed, or its machine "
      "cannot be "
      "reached",
      rank, who);
}

constexpr std::string_view kNoMemory =
    "out of memory on the thread that receives messages of other ranks";
// Reserved to send last words without allocating.
constexpr std::size_t kWordsBytes = 4096;

}  // namespace

TcpControlPlane::TcpControlPlane(const JobPlace& place, std::chrono::milliseconds patience,
                                 std::chrono::milliseconds deadline, Socket listener)
    : ControlPlane{place.rank, place.job.size, deadline},
      groups_{place.job.size},
      ended_(static_cast<std::size_t>(place.job.size)) {
  if (size() == 1) { return; }
  coordinator_ =
      join_job(place, std::move(listener), names(), std::min(patience, kLongestDeadline));
  std::tie(wake_reader_, wake_writer_) = socket_pair();
  Frame failure;
  failure.type = FrameType::failure;
  append(last_words_, failure);
  no_memory_ = kNoMemory;
  out_.bytes().reserve(kWordsBytes);
  thread_ = start_thread("the thread that hears other ranks", [this] { serve(); });
}

TcpControlPlane::~TcpControlPlane() {
  if (!thread_.joinable()) { return; }
  stop_ = true;
  (void)wake_writer_.send_some("x", 1);
  thread_.join();
}

// ---- the thread that reads

void TcpControlPlane::serve() {
  try {
    hear();
  } catch (const std::exception&) { end_without_memory(); }
  // The connection is lost, or this rank leaves: its last messages must arrive.
  Patience patience{kLastWords};
  std::unique_lock lock{mutex_};
  while (!out_.empty() && !patience.over()) {
    send_waiting();
    if (!out_.empty()) { changed_.wait_for(lock, 5ms); }
  }
  coordinator_.socket.end_sending();
}

/// The rank fails. The others are told if that needs no memory; otherwise they see that the
/// connection ends.
void TcpControlPlane::end_without_memory() noexcept {
  const std::scoped_lock lock{mutex_};
  if (!failure().set_prepared(std::move(no_memory_), kCommStatus, rank())) { return; }
  std::string& out = out_.bytes();
  if (out.capacity() - out.size() >= last_words_.size()) { out += last_words_; }
  changed_.notify_all();
}

void TcpControlPlane::hear() {
  bool goes_on = read();  // bytes that arrived together with the welcome
  while (goes_on && !stop_) {
    bool sends = false;
    {
      const std::scoped_lock lock{mutex_};
      sends = !out_.empty();
    }
    std::array<pollfd, 2> watched{
        pollfd{coordinator_.socket.handle(), static_cast<short>(POLLIN | (sends ? POLLOUT : 0)), 0},
        pollfd{wake_reader_.handle(), POLLIN, 0}};
    (void)::poll(watched.data(), watched.size(), kTickMs);
    std::array<char, 64> waker;
    while (wake_reader_.receive_some(waker.data(), waker.size()).value_or(0) > 0) {}
    goes_on = watched[0].revents == 0 || read();
    if (!goes_on) { break; }
    const std::scoped_lock lock{mutex_};
    send_issued();
    send_waiting();
  }
}

/// Returns false if the connection has ended.
bool TcpControlPlane::read() {
  std::array<char, 65536> buffer;
  std::string problem;
  try {
    for (;;) {
      Frame frame;
      while (coordinator_.in.next(frame)) { on_frame(frame); }
      const auto count = coordinator_.socket.receive_some(buffer.data(), buffer.size());
      if (!count) { break; }
      if (*count == 0) { return true; }
      if (!coordinator_.in.add({buffer.data(), *count})) {
        problem = "it sent bytes that are not a message between ranks";
        break;
      }
    }
  } catch (const std::bad_alloc&) { throw; } catch (const std::exception& error) {
    problem = error.what();
  }
  if (!met_at_end_) { on_coordinators_end(problem); }
  if (problem.empty()) {
    const std::scoped_lock lock{mutex_};
    out_.clear();
  }
  return false;
}

void TcpControlPlane::on_frame(Frame& frame) {
  switch (frame.type) {
    case FrameType::failure:
      if (frame.rank != rank()) {
        const bool no_memory = frame.sequence == 0 && frame.payload.empty();
        failure().hear(
            frame.rank,
            no_memory ? fmt::format("{}: {}", names().of(frame.rank), kNoMemory) : frame.payload,
            no_memory ? kCommStatus : static_cast<int>(frame.sequence));
        wake();
      }
      return;
    case FrameType::lost:
      return on_lost(frame.rank, frame.payload);
    case FrameType::explain:
      return explain(frame);
    case FrameType::differ:
      return fail(frame.payload.empty() ? coordinator_without_memory() : frame.payload, frame.rank);
    default:
      break;
  }
  const std::scoped_lock lock{mutex_};
  if (frame.type == FrameType::texts) {
    texts_[{frame.call, frame.sequence}] =
        decode_texts(frame.payload, groups_.members(frame.call.group).size());
    met_at_end_ = met_at_end_ || frame.call == CallKind::end;
  } else if (frame.type == FrameType::answer) {
    auto [missing, by] = decode_answer(frame.payload);
    answers_[{frame.call, frame.sequence}] = {.missing = std::move(missing), .by = std::move(by)};
  } else if (frame.type == FrameType::at_end && frame.rank >= 0 && frame.rank < size()) {
    ended_[static_cast<std::size_t>(frame.rank)] = decode_counts(frame.payload);
  }
  changed_.notify_all();
}

/// All remaining ranks find this: the lowest of them reports.
void TcpControlPlane::on_lost(int lost, const std::string& who) {
  const int reports = lost == 0 ? 1 : 0;
  std::string text = lost_text(names().of(lost), who);
  if (const std::string call = call_under_way(); !call.empty()) {
    text += fmt::format("; {} was in {}", names().of(rank()), call);
  }
  lost_ = true;
  fail_untold(text, reports);
}

/// The connection has ended or, if `problem` is set, is unusable.
void TcpControlPlane::on_coordinators_end(const std::string& problem) {
  const std::string where = fmt::format("at {}", coordinator_.at.text());
  if (problem.empty()) { return on_lost(0, where); }
  fail(broken_text(fmt::format("{} ({})", names().of(0), where), problem), rank());
}

std::string TcpControlPlane::coordinator_without_memory() const {
  return fmt::format(
      "out of memory on {}, on the thread that passes on what the ranks of the job tell each other",
      names().of(0));
}

std::string TcpControlPlane::call_under_way() {
  const std::scoped_lock lock{under_way_mutex_};
  return under_way_ ? under_way_() : "";
}

void TcpControlPlane::name_calls_by(std::function<std::string()> under_way) {
  const std::scoped_lock lock{under_way_mutex_};
  under_way_ = std::move(under_way);
}

void TcpControlPlane::explain(const Frame& asked) {
  const std::scoped_lock lock{mutex_};
  append(out_.bytes(), issued(asked.call).explain(asked));
}

// ---- under the lock

void TcpControlPlane::say(const Frame& frame) {
  append(out_.bytes(), frame);
  send_waiting();
  if (!out_.empty()) { (void)wake_writer_.send_some("x", 1); }
}

void TcpControlPlane::send_issued() {
  for (auto& [channel, batches] : issued_) {
    if (const auto frame = batches.take_unsent()) { append(out_.bytes(), *frame); }
  }
}

void TcpControlPlane::send_waiting() {
  (void)out_.send_over(coordinator_.socket);  // the reader sees a lost connection
}

IssuedBatches& TcpControlPlane::issued(const CallSeries& channel) {
  return issued_.try_emplace(channel, channel).first->second;
}

// ---- calls

void TcpControlPlane::add_group(std::uint64_t number, const std::string& name,
                                const std::vector<int>& members) {
  const std::scoped_lock lock{mutex_};
  failure().check(rank());
  groups_.add(number, name, members);
  if (members.size() == 1) { return; }
  Frame frame;
  frame.type = FrameType::group;
  frame.call.group = number;
  frame.payload = encode(GroupMessage{name, members});
  say(frame);
}

std::string TcpControlPlane::called(const CallSeries& call, std::uint64_t sequence) const {
  const char* const what = call == CallKind::end     ? "end of the run"
                           : call == CallKind::setup ? "start of the communicators"
                                                     : "exchange";
  return call_text(what, groups_.channel_name(call), sequence);
}

std::vector<std::string> TcpControlPlane::exchange(const CallSeries& call, std::string message) {
  if (message.size() > kMostTextBytes) {
    throw ContractError{fmt::format("a rank exchanges {} bytes of text, more than the {} allowed",
                                    message.size(), kMostTextBytes)};
  }
  std::unique_lock lock{mutex_};
  failure().check(rank());
  const std::size_t ranks = groups_.members(call.group).size();
  const std::uint64_t sequence = counts_[call]++;
  if (ranks == 1) { return {std::move(message)}; }
  send_issued();
  Frame frame;
  frame.type = FrameType::text;
  frame.call = call;
  frame.sequence = sequence;
  frame.payload = std::move(message);
  const bool at_end = call == CallKind::end;
  if (at_end) { frame.payload = encode(counts_); }
  say(frame);

  const std::chrono::milliseconds patience = at_end ? end_deadline() : deadline();
  const auto key = std::pair{call, sequence};
  std::optional<int> ended;
  const bool in_time = WaitClock{patience}.wait_for(changed_, lock, patience, [&] {
    if (!at_end) { ended = ended_without_locked(call, sequence); }
    return failed() || ended || texts_.contains(key);
  });
  if (auto texts = texts_.extract(key)) { return std::move(texts.mapped()); }
  failure().check(rank());
  const std::string what = called(call, sequence);
  if (ended) {
    lock.unlock();
    fail_and_throw(ended_text(names(), what, rank(), *ended), rank());
  }
  TESSERA_ASSERT(!in_time);
  Answer answer = ask_locked(lock, call, sequence);
  // All others may have made the call in the meantime, and go on.
  if (auto texts = texts_.extract(key)) { return std::move(texts.mapped()); }
  if (!answer.silent && answer.missing.empty() && answer.by.guilty.empty()) {
    // All have made the call but must not go on: they are about to be told how their batches
    // differ.
    (void)WaitClock{kAnswer}.wait_for(changed_, lock, kAnswer, [&] { return failed(); });
    failure().check(rank());
    answer = unanswered();
  }
  lock.unlock();
  fail_as(answer, late_text_of(what, patience, answer, Owed::call));
}

/// If rank 0 passes nothing on, ranks cannot hear of each other: rank 1 reports.
void TcpControlPlane::fail_as(const Answer& answer, const std::string& text) {
  fail_and_throw(text, answer.unheard ? 1 : rank());
}

std::string TcpControlPlane::late_text_of(std::string_view call, std::chrono::milliseconds waited,
                                          const Answer& answer, Owed owed) const {
  if (answer.silent) {
    return fmt::format(
        "{}: {} waited {} ms, and its own thread that passes on messages does not answer", call,
        names().of(rank()), waited.count());
  }
  if (!answer.by.guilty.empty()) {
    return held_up_text(names(), call, rank(), waited, answer.missing, answer.by);
  }
  const auto text = owed == Owed::data ? stopped_text : missing_text;
  return text(names(), call, rank(), waited, answer.missing);
}

/// Throws the job's failure if that comes first.
TcpControlPlane::Answer TcpControlPlane::ask_locked(std::unique_lock<std::mutex>& lock,
                                                    const CallSeries& call, std::uint64_t sequence,
                                                    const WaitMessage& wait) {
  const auto key = std::pair{call, sequence};
  send_issued();  // so that this rank's own batch does not count as missing
  Frame frame;
  frame.type = FrameType::ask;
  frame.call = call;
  frame.sequence = sequence;
  frame.payload = encode(wait);
  say(frame);
  (void)WaitClock{kAnswer}.wait_for(changed_, lock, kAnswer,
                                    [&] { return failed() || answers_.contains(key); });
  if (auto answer = answers_.extract(key)) { return std::move(answer.mapped()); }
  failure().check(rank());
  return unanswered();
}

/// Without an answer, the rank at fault is rank 0, which runs the coordinator.
TcpControlPlane::Answer TcpControlPlane::unanswered() const {
  if (rank() == 0) { return {.missing = {}, .silent = true}; }
  return {.missing = {0}, .unheard = true};
}

void TcpControlPlane::fail_for_difference(std::string_view call) {
  {
    std::unique_lock lock{mutex_};
    (void)WaitClock{deadline()}.wait_for(changed_, lock, deadline(), [this] { return failed(); });
  }
  check_alive();
  fail_and_throw(fmt::format("{}: ranks issued different batches, and {} does not say how", call,
                             names().of(0)),
                 rank());
}

std::uint64_t TcpControlPlane::note_batch(const CallSeries& channel, std::string code) {
  const std::scoped_lock lock{mutex_};
  failure().check(rank());
  const std::size_t ranks = groups_.members(channel.group).size();
  const std::uint64_t sequence = counts_[channel]++;
  if (ranks == 1) { return sequence; }
  issued(channel).add(std::move(code));
  return sequence;
}

void TcpControlPlane::note_held(const CallSeries& channel, std::optional<std::uint64_t> sequence) {
  const std::scoped_lock lock{mutex_};
  const auto told = held_.find(channel);
  if (failed() || groups_.members(channel.group).size() == 1) { return; }
  if (told == held_.end() ? !sequence : sequence == told->second) { return; }
  if (told != held_.end()) {
    say_held(channel, told->second, {.waits = false});
    held_.erase(told);
  }
  if (sequence) {
    say_held(channel, *sequence, {});
    held_.insert_or_assign(channel, *sequence);
  }
}

void TcpControlPlane::say_held(const CallSeries& channel, std::uint64_t sequence,
                               const WaitMessage& wait) {
  send_issued();  // including that batch
  Frame frame;
  frame.type = FrameType::held;
  frame.call = channel;
  frame.sequence = sequence;
  frame.payload = encode(wait);
  say(frame);
}

void TcpControlPlane::note_wait(const CallSeries& channel, std::uint64_t sequence,
                                const WaitMessage& wait) {
  const std::scoped_lock lock{mutex_};
  if (!failed()) { say_held(channel, sequence, wait); }
}

void TcpControlPlane::fail_late(const CallSeries& channel, std::uint64_t sequence,
                                std::string_view call, std::chrono::milliseconds waited,
                                const WaitMessage& wait) {
  std::unique_lock lock{mutex_};
  const Answer answer = ask_locked(lock, channel, sequence, wait);
  lock.unlock();
  fail_as(answer, late_text_of(call, waited, answer, wait.owed));
}

std::optional<int> TcpControlPlane::ended_without_locked(const CallSeries& call,
                                                         std::uint64_t sequence) const {
  for (const int rank : groups_.members(call.group)) {
    const auto& ended = ended_[static_cast<std::size_t>(rank)];
    if (!ended) { continue; }
    const auto count = ended->find(call);
    if (count == ended->end() || count->second <= sequence) { return rank; }
  }
  return {};
}

std::optional<int> TcpControlPlane::ended_without(const CallSeries& channel,
                                                  std::uint64_t sequence) const {
  const std::scoped_lock lock{mutex_};
  return ended_without_locked(channel, sequence);
}

std::string TcpControlPlane::late_text(const CallSeries& channel, std::uint64_t sequence,
                                       std::string_view call, std::chrono::milliseconds waited) {
  std::unique_lock lock{mutex_};
  std::vector<int> others = groups_.members(channel.group);
  std::erase(others, rank());
  if (others.empty()) { return {}; }
  const Answer answer = ask_locked(lock, channel, sequence);
  if (answer.silent || !answer.missing.empty() || !answer.by.guilty.empty()) {
    return late_text_of(call, waited, answer, Owed::call);
  }
  return stopped_text(names(), call, rank(), waited, others);
}

// ---- failing

void TcpControlPlane::tell(const Failure& failure) {
  Frame frame;
  frame.type = FrameType::failure;
  frame.sequence = static_cast<std::uint64_t>(failure.status);
  frame.payload = failure.text;
  const std::scoped_lock lock{mutex_};
  say(frame);
}

void TcpControlPlane::wake() noexcept {
  const std::scoped_lock lock{mutex_};
  changed_.notify_all();
}

}  // namespace tessera::comm
