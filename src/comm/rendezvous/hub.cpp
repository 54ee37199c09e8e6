#include "comm/rendezvous/hub.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/batch_code.hpp"
#include "comm/batch_text.hpp"
#include "comm/failure_texts.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

using namespace std::chrono_literals;

// Of a connection that has not said who it is.
constexpr std::size_t kHelloBytes = 4096;
constexpr std::size_t kMostStrangers = 256;
constexpr auto kHelloTime = 5s;
// Batches that some ranks have issued and others not yet.
constexpr std::size_t kMostIssued = std::size_t{1} << 20;
constexpr auto kDisputeTime = 1s;
constexpr auto kLastWords = 1s;
constexpr int kTickMs = 20;
constexpr int kIdleMs = 1000;

std::string list_ranks(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

}  // namespace

Hub::Hub(JobIdentity job, Socket listener, Socket own, std::chrono::milliseconds patience)
    : job_{std::move(job)},
      join_end_{Clock::now() + patience},
      listener_{std::move(listener)},
      gather_{job_.size},
      reduce_{job_.size} {
  std::tie(wake_reader_, wake_writer_) = socket_pair();
  lines_.emplace_back(std::move(own), FrameReader{kHelloBytes});
  thread_ = std::thread{[this] { serve(); }};
}

Hub::~Hub() {
  stop_ = true;
  (void)wake_writer_.send_some("x", 1);
  thread_.join();
}

void Hub::serve() {
  while (!stop_) { serve_once(timeout_ms()); }
  // What the ranks have said is passed on, and what is to be told leaves, before the end.
  const auto end = Clock::now() + kLastWords;
  serve_once(0);
  const auto has_words = [](const Line& line) { return !line.out.empty(); };
  while (std::any_of(lines_.begin(), lines_.end(), has_words) && Clock::now() < end) {
    serve_once(kTickMs);
  }
  for (Line& line : lines_) { line.socket.end_sending(); }
}

int Hub::timeout_ms() const {
  const bool waits = (!joined_ && !given_up_) || dispute_.has_value();
  return waits ? kTickMs : kIdleMs;
}

void Hub::serve_once(int timeout_ms) {
  std::vector<pollfd> watched;
  watched.push_back({wake_reader_.handle(), POLLIN, 0});
  watched.push_back({listener_.handle(), POLLIN, 0});  // ignored once it is closed: -1
  for (const Line& line : lines_) {
    watched.push_back(
        {line.socket.handle(), static_cast<short>(POLLIN | (line.out.empty() ? 0 : POLLOUT)), 0});
  }
  (void)::poll(watched.data(), watched.size(), timeout_ms);
  std::size_t at = 2;
  for (Line& line : lines_) {
    if (watched[at++].revents != 0) { read(line); }
  }
  if (watched[1].revents != 0) { let_in(); }
  look_at_time();
  for (Line& line : lines_) { write(line); }
  close_ended();
}

void Hub::look_at_time() {
  const auto now = Clock::now();
  for (Line& line : lines_) {
    if (line.rank < 0 && now > line.since + kHelloTime) { line.closing = true; }
  }
  if (!joined_ && !given_up_ && now > join_end_) {
    std::vector<int> absent;
    for (int rank = 0; rank < job_.size; ++rank) {
      if (line_of(rank) == nullptr) { absent.push_back(rank); }
    }
    give_up(
        fmt::format("{} of {} did not come to the rendezvous by the deadline; look whether {} "
                    "and can reach rank 0's address (MASTER_ADDR, MASTER_PORT)",
                    list_ranks(absent), job_.size,
                    absent.size() == 1 ? "its process runs" : "their processes run"));
  }
  if (dispute_) { settle_dispute(); }
}

void Hub::let_in() {
  while (Socket socket = accept_from(listener_)) {
    const auto strangers =
        std::count_if(lines_.begin(), lines_.end(), [](const Line& line) { return line.rank < 0; });
    if (static_cast<std::size_t>(strangers) >= kMostStrangers) { continue; }
    lines_.emplace_back(std::move(socket), FrameReader{kHelloBytes});
  }
}

void Hub::read(Line& line) {
  std::array<char, 65536> buffer;
  for (;;) {
    const auto count = line.socket.receive_some(buffer.data(), buffer.size());
    if (!count) { return on_closed(line); }
    if (*count == 0) { return; }
    if (line.closing) { continue; }
    if (!take(line, {buffer.data(), *count})) { return on_closed(line); }
  }
}

/// False if the line does not speak as it should.
bool Hub::take(Line& line, std::string_view bytes) {
  if (!line.in.add(bytes)) { return false; }
  Frame frame;
  try {
    while (!line.closing && line.in.next(frame)) {
      if (line.rank >= 0) {
        on_frame(line, frame);
      } else {
        on_hello(line, frame);
      }
    }
    // A frame that was acceptable as it began may follow one that changed what is.
    return line.in.add({});
  } catch (const std::exception&) { return false; }  // cut short, or not a batch's code
}

void Hub::write(Line& line) {
  if (!line.out.send_over(line.socket)) { line.closing = true; }
}

void Hub::close_ended() {
  for (auto line = lines_.begin(); line != lines_.end();) {
    if (line->closing && line->out.empty()) {
      line = lines_.erase(line);
    } else {
      ++line;
    }
  }
}

/// Who differs in what all ranks of a job share ends the job, if it is of the same launch: nobody
/// could go on. Anybody else is turned away.
void Hub::on_hello(Line& line, const Frame& frame) {
  if (frame.type != FrameType::hello || joined_ || given_up_) {
    line.closing = true;
    return;
  }
  PayloadReader hello{frame.payload};
  const std::int64_t size = hello.number();
  const std::string build = hello.text();
  const std::string token = hello.text();
  const std::string who = hello.text();
  if (token != job_.token) {
    return turn_away(line, "rank 0 that listens there is of another job", /*try_again=*/true);
  }
  if (size != job_.size) {
    return give_up(line,
                   fmt::format("rank {} ({}) was started as one of {} processes, but rank 0 "
                               "as one of {}; the number (WORLD_SIZE) must be the same for all",
                               frame.rank, who, size, job_.size));
  }
  if (build != job_.build) {
    return give_up(line,
                   fmt::format("rank {} ({}) is of another build ({}) than rank 0 ({}); start "
                               "the same program on all ranks",
                               frame.rank, who, build, job_.build));
  }
  if (frame.rank < 0 || frame.rank >= job_.size) {
    line.closing = true;
    return;
  }
  if (const Line* const other = line_of(frame.rank)) {
    return give_up(line, fmt::format("two processes say that they are rank {}: {} and {}; every "
                                     "process has a number (RANK) of its own",
                                     frame.rank, other->who, who));
  }
  line.rank = frame.rank;
  line.who = who;
  line.in.allow(kMostTextBytes);
  const auto ranks =
      std::count_if(lines_.begin(), lines_.end(), [](const Line& each) { return each.rank >= 0; });
  if (ranks == job_.size) { begin_job(); }
}

void Hub::turn_away(Line& line, const std::string& why, bool try_again) {
  Frame frame;
  frame.type = FrameType::refuse;
  frame.sequence = try_again ? 1 : 0;
  frame.payload = why;
  say(line, frame);
  line.closing = true;
}

void Hub::begin_job() {
  joined_ = true;
  listener_ = {};
  for (Line& line : lines_) {
    if (line.rank < 0) { line.closing = true; }
  }
  Frame frame;
  frame.type = FrameType::welcome;
  say_to_all(frame);
}

/// Because of what `line` said.
void Hub::give_up(Line& line, const std::string& why) {
  turn_away(line, why, /*try_again=*/false);
  give_up(why);
}

void Hub::give_up(const std::string& why) {
  given_up_ = true;
  listener_ = {};
  for (Line& line : lines_) {
    if (line.rank >= 0) { turn_away(line, why, /*try_again=*/false); }
  }
}

void Hub::on_frame(Line& line, Frame& frame) {
  frame.rank = line.rank;
  switch (frame.type) {
    case FrameType::text:
      return on_text(line, frame);
    case FrameType::failure:
      return say_to_all(frame);
    case FrameType::issued:
      return on_issued(line, frame);
    case FrameType::code:
      return on_code(line, frame);
    case FrameType::ask: {
      PayloadWriter ranks;
      for (const int rank : missing(frame.call, frame.sequence)) { ranks.number(rank); }
      frame.type = FrameType::answer;
      frame.payload = ranks.take();
      return say(line, frame);
    }
    default:
      throw CommError{"a rank says what only the hub does"};
  }
}

void Hub::on_text(Line& line, Frame& frame) {
  if (frame.call == CallKind::end) {
    line.at_end = true;
    Frame told = frame;
    told.type = FrameType::at_end;
    say_to_all(told);
  }
  const auto key = std::pair{frame.call, frame.sequence};
  Meeting& meeting = meetings_[key];
  meeting.texts.resize(static_cast<std::size_t>(job_.size));
  auto& place = meeting.texts[static_cast<std::size_t>(line.rank)];
  if (place) { throw CommError{"a rank has come to a call twice"}; }
  place = std::move(frame.payload);
  // With it came what the rank has issued: ranks that differ do not come past a call.
  if (++meeting.present < job_.size || dispute_) { return; }
  PayloadWriter all;
  for (const auto& text : meeting.texts) { all.text(*text); }
  frame.type = FrameType::texts;
  frame.payload = all.take();
  meetings_.erase(key);
  if (frame.payload.size() > UINT32_MAX) {
    frame.type = FrameType::differ;
    frame.payload = "what the ranks exchange is more than 4 GiB together";
  }
  say_to_all(frame);
}

void Hub::on_issued(const Line& line, const Frame& frame) {
  CallLedger* const calls = ledger(frame.call);
  std::vector<std::uint64_t> hashes(frame.payload.size() / sizeof(std::uint64_t));
  if (hashes.size() > kMostIssued) { throw CommError{"more batches than a rank can issue"}; }
  std::memcpy(hashes.data(), frame.payload.data(), hashes.size() * sizeof(std::uint64_t));
  if (calls == nullptr || !calls->add(line.rank, frame.sequence, hashes)) {
    throw CommError{"a rank's batches are not in order"};
  }
  if (calls->difference() && !dispute_) {
    dispute_.emplace();
    dispute_->channel = frame.call;
    dispute_->sequence = *calls->difference();
    dispute_->codes.resize(static_cast<std::size_t>(job_.size));
    settle_dispute();
  }
}

void Hub::on_code(const Line& line, Frame& frame) {
  if (!dispute_ || frame.payload.empty() || frame.payload[0] != 1 ||
      frame.call != dispute_->channel || frame.sequence != dispute_->sequence) {
    return;
  }
  (void)decode(std::string_view{frame.payload}.substr(1));  // throws if it is none
  dispute_->codes[static_cast<std::size_t>(line.rank)] = frame.payload.substr(1);
}

/// Asks those that have not said what they issued, and tells all the difference once all have, or a
/// while has passed.
void Hub::settle_dispute() {
  Dispute& dispute = *dispute_;
  if (dispute.told || Clock::now() < dispute.ask_at) { return; }
  dispute.ask_at = Clock::now() + std::chrono::milliseconds{kTickMs};
  const bool all = std::all_of(dispute.codes.begin(), dispute.codes.end(),
                               [](const auto& code) { return code.has_value(); });
  Frame frame;
  frame.call = dispute.channel;
  frame.sequence = dispute.sequence;
  if (!all && Clock::now() < dispute.since + kDisputeTime) {
    frame.type = FrameType::explain;
    for (Line& line : lines_) {
      if (line.rank >= 0 && !dispute.codes[static_cast<std::size_t>(line.rank)]) {
        say(line, frame);
      }
    }
    return;
  }
  frame.type = FrameType::differ;
  frame.payload = disagreement_text(dispute.channel == CallKind::gather_batch ? "gather" : "reduce",
                                    dispute.sequence, dispute_text());
  say_to_all(frame);
  dispute.told = true;
}

std::string Hub::dispute_text() const {
  std::vector<Batch> batches;
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < dispute_->codes.size(); ++rank) {
    if (!dispute_->codes[rank]) { continue; }
    batches.push_back(decode(*dispute_->codes[rank]));
    ranks.push_back(static_cast<int>(rank));
  }
  if (batches.size() == dispute_->codes.size()) {
    std::vector<const Batch*> all;
    for (const Batch& batch : batches) { all.push_back(&batch); }
    return first_difference(all).value_or("the hashes of equal batches");
  }
  std::string text = "some did not say what it was";
  for (std::size_t i = 0; i < batches.size(); ++i) {
    text += fmt::format("; rank {} issued {}", ranks[i], describe(batches[i]));
  }
  return text;
}

std::vector<int> Hub::missing(CallKind call, std::uint64_t sequence) const {
  if (call == CallKind::gather_batch) { return gather_.missing(sequence); }
  if (call == CallKind::reduce_batch) { return reduce_.missing(sequence); }
  std::vector<int> ranks;
  const auto meeting = meetings_.find({call, sequence});
  for (int rank = 0; rank < job_.size; ++rank) {
    const bool came = meeting != meetings_.end() &&
                      meeting->second.texts[static_cast<std::size_t>(rank)].has_value();
    if (!came) { ranks.push_back(rank); }
  }
  return ranks;
}

CallLedger* Hub::ledger(CallKind call) {
  if (call == CallKind::gather_batch) { return &gather_; }
  if (call == CallKind::reduce_batch) { return &reduce_; }
  return nullptr;
}

void Hub::on_closed(Line& line) {
  if (line.closing) {
    line.out.clear();
    return;
  }
  line.closing = true;
  line.out.clear();
  if (line.rank < 0 || !joined_ || line.at_end) {
    line.rank = -1;  // it may come again
    return;
  }
  Frame frame;
  frame.type = FrameType::lost;
  frame.rank = line.rank;
  frame.payload = line.who;
  say_to_all(frame);
}

Hub::Line* Hub::line_of(int rank) {
  const auto found = std::find_if(lines_.begin(), lines_.end(),
                                  [rank](const Line& line) { return line.rank == rank; });
  return found == lines_.end() ? nullptr : &*found;
}

void Hub::say(Line& line, const Frame& frame) {
  append(line.out.bytes(), frame);
}

void Hub::say_to_all(const Frame& frame) {
  for (Line& line : lines_) {
    if (line.rank >= 0 && !line.closing) { say(line, frame); }
  }
}

}  // namespace tessera
