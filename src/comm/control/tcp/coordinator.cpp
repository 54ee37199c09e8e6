#include "comm/control/tcp/coordinator.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <new>
#include <tuple>
#include <utility>

#include "base/process_limits.hpp"
#include "comm/control/failure_texts.hpp"
#include "comm/control/tcp/listening.hpp"
#include "comm/control/tcp/messages.hpp"
#include "tessera/base/error.hpp"

namespace tessera::comm {
namespace {

using namespace std::chrono_literals;

// The most bytes read from a connection that has not identified itself.
constexpr std::size_t kHelloBytes = 4096;
constexpr std::ptrdiff_t kMostStrangers = 256;
constexpr std::ptrdiff_t kMostOfOneHost = 64;
constexpr auto kHelloTime = 5s;
// The most connections accepted in one round, so that the ranks are served too.
constexpr int kMostLetIn = 32;
constexpr int kMostReads = 16;
constexpr auto kCoordinatorLastWords = 1s;
constexpr int kCoordinatorTickMs = 20;
// Reserved in a rank's outbox, to send last words without allocating.
constexpr std::size_t kCoordinatorWordsBytes = 4096;

/// Compares in constant time, so that the time does not reveal where they differ.
bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) { return false; }
  unsigned differ = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    differ |= static_cast<unsigned>(static_cast<unsigned char>(a[i])) ^
              static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  }
  return differ == 0;
}

Frame told_by(int reporter, std::string text) {
  Frame frame;
  frame.type = FrameType::differ;
  frame.rank = reporter;
  frame.payload = std::move(text);
  return frame;
}

}  // namespace

Coordinator::Coordinator(JobIdentity job, const RankNames& names, Socket listener, Socket own,
                         std::chrono::milliseconds patience)
    : job_{std::move(job)},
      names_{names},
      clock_{patience},
      join_end_{clock_.now() + patience},
      listener_{std::move(listener)},
      talk_{job_.size, names,
            [this](const std::vector<int>& ranks, const Frame& frame) { say_to(ranks, frame); }} {
  std::tie(wake_reader_, wake_writer_) = socket_pair();
  add_line(std::move(own));
  append(last_words_, told_by(0, ""));
  thread_ = start_thread("the thread that passes on messages of ranks", [this] { serve(); });
}

Coordinator::~Coordinator() {
  stop_ = true;
  (void)wake_writer_.send_some("x", 1);
  thread_.join();
}

void Coordinator::serve() {
  try {
    serve_all();
  } catch (const std::exception&) { end_without_memory(); }
  for (Line& line : lines_) { line.socket.end_sending(); }
}

/// The coordinator cannot go on, and no rank is at fault. Tells the ranks if that needs no memory;
/// otherwise they see that their connections end.
void Coordinator::end_without_memory() noexcept {
  listener_ = {};
  for (Line& line : lines_) {
    std::string& out = line.out.bytes();
    if (out.capacity() - out.size() >= last_words_.size()) { out += last_words_; }
  }
  Patience patience{kCoordinatorLastWords};
  const auto has_words = [](const Line& line) { return !line.closing && !line.out.empty(); };
  for (;;) {
    for (Line& line : lines_) { write(line); }
    if (std::none_of(lines_.begin(), lines_.end(), has_words) || patience.over()) { return; }
    std::this_thread::sleep_for(5ms);
  }
}

void Coordinator::serve_all() {
  while (!stop_) { serve_once(timeout_ms()); }
  // Messages of ranks are passed on, and pending ones sent, before the end.
  Patience patience{kCoordinatorLastWords};
  serve_once(0);
  const auto has_words = [](const Line& line) { return !line.out.empty(); };
  while (std::any_of(lines_.begin(), lines_.end(), has_words) && !patience.over()) {
    serve_once(kCoordinatorTickMs);
  }
}

int Coordinator::timeout_ms() const {
  const bool waits = (!joined_ && !given_up_) || talk_.disputes();
  if (waits) { return kCoordinatorTickMs; }
  return static_cast<int>(std::chrono::floor<std::chrono::milliseconds>(clock_.tick()).count());
}

void Coordinator::serve_once(int timeout_ms) {
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

void Coordinator::look_at_time() {
  const WaitClock::Time now = clock_.now();
  for (Line& line : lines_) {
    if (line.rank < 0 && now > line.since + kHelloTime) { line.closing = true; }
  }
  if (!joined_ && !given_up_ && now > join_end_) {
    std::vector<int> absent;
    for (int rank = 0; rank < job_.size; ++rank) {
      if (line_of(rank) == nullptr) { absent.push_back(rank); }
    }
    give_up(
        fmt::format("{} of {} did not reach the rendezvous by the deadline; check whether {} and "
                    "can reach rank 0, which listens at {}: {}",
                    names_.of(absent), job_.size,
                    absent.size() == 1 ? "its process runs" : "their processes run",
                    listening_text(listener_), job_.remedy));
  }
  talk_.settle(now);
}

void Coordinator::let_in() {
  for (int i = 0; i < kMostLetIn; ++i) {
    Socket socket = accept_from(listener_);
    if (!socket) {
      // Without a free handle the connection keeps waiting, and would be reported again at once.
      if (is_out_of_handles() && !close_first_stranger(nullptr)) {
        std::this_thread::sleep_for(10ms);
      }
      return;
    }
    std::string host = peer_host(socket);
    make_room_for(host);
    add_line(std::move(socket)).host = std::move(host);
  }
}

Coordinator::Line& Coordinator::add_line(Socket socket) {
  Line& line = lines_.emplace_back(std::move(socket), FrameReader{kHelloBytes});
  line.since = clock_.now();
  return line;
}

void Coordinator::make_room_for(const std::string& host) {
  std::ptrdiff_t strangers = 0;
  std::ptrdiff_t of_host = 0;
  for (const Line& line : lines_) {
    if (line.rank >= 0 || line.closing) { continue; }
    ++strangers;
    of_host += line.host == host ? 1 : 0;
  }
  if (of_host >= kMostOfOneHost) {
    (void)close_first_stranger(&host);
  } else if (strangers >= kMostStrangers) {
    (void)close_first_stranger(nullptr);
  }
}

/// Closes the oldest connection that has not identified itself, from `host` or from any. Returns
/// false if there is none.
bool Coordinator::close_first_stranger(const std::string* host) {
  const auto first = std::find_if(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.rank < 0 && !line.closing && !line.host.empty() &&
           (host == nullptr || line.host == *host);
  });
  if (first == lines_.end()) { return false; }
  lines_.erase(first);
  return true;
}

void Coordinator::read(Line& line) {
  std::array<char, 65536> buffer;
  for (int i = 0; i < kMostReads; ++i) {
    const auto count = line.socket.receive_some(buffer.data(), buffer.size());
    if (!count) { return on_closed(line); }
    if (*count == 0) { return; }
    if (line.closing) { continue; }
    const std::string problem = take(line, {buffer.data(), *count});
    if (!problem.empty()) { return on_broken(line, problem); }
  }
}

/// Returns what is wrong with the received bytes; empty if they are valid.
std::string Coordinator::take(Line& line, std::string_view bytes) {
  constexpr const char* kNoFrame = "it sent bytes that are not a message between ranks";
  if (!line.in.add(bytes)) { return kNoFrame; }
  Frame frame;
  try {
    while (!line.closing && line.in.next(frame)) {
      if (line.rank >= 0) {
        on_frame(line, frame);
      } else {
        on_hello(line, frame);
      }
    }
  } catch (const std::bad_alloc&) { throw; } catch (const std::exception& error) {
    return error.what();  // cut short, or not a batch's code
  }
  // A frame that was acceptable when it began may follow one that changed which are.
  return line.in.add({}) ? "" : kNoFrame;
}

void Coordinator::write(Line& line) {
  if (!line.out.send_over(line.socket)) { line.closing = true; }
}

void Coordinator::close_ended() {
  for (auto line = lines_.begin(); line != lines_.end();) {
    if (line->closing && line->out.empty()) {
      line = lines_.erase(line);
    } else {
      ++line;
    }
  }
}

/// A process of the same launch with another job identity ends the job: no rank could go on. Any
/// other process is turned away.
void Coordinator::on_hello(Line& line, const Frame& frame) {
  if (frame.type != FrameType::hello || joined_ || given_up_) {
    line.closing = true;
    return;
  }
  const auto [size, build, token, secret, who] = decode_hello(frame.payload);
  if (token != job_.token || !same_secret(secret, job_.secret)) {
    return turn_away(line, "rank 0 at this address belongs to another job, or has another secret",
                     /*try_again=*/true);
  }
  if (size != job_.size) {
    return give_up(line, fmt::format("rank {} ({}) was started as one of {} processes, but rank 0 "
                                     "as one of {}; set the same number (WORLD_SIZE) for all",
                                     frame.rank, who, size, job_.size));
  }
  if (build != job_.build) {
    return give_up(line, fmt::format("rank {} ({}) runs another build ({}) than rank 0 ({}); start "
                                     "the same program on all ranks",
                                     frame.rank, who, build, job_.build));
  }
  if (frame.rank < 0 || frame.rank >= job_.size) {
    line.closing = true;
    return;
  }
  if (const Line* const other = line_of(frame.rank)) {
    return give_up(line, fmt::format("two processes say that they are rank {}: {} and {}; give "
                                     "every process its own number (RANK)",
                                     frame.rank, other->who, who));
  }
  line.rank = frame.rank;
  line.who = who;
  line.in.allow(kMostTextBytes);
  line.out.bytes().reserve(kCoordinatorWordsBytes);
  const auto ranks =
      std::count_if(lines_.begin(), lines_.end(), [](const Line& each) { return each.rank >= 0; });
  if (ranks == job_.size) { return begin_job(); }
  Frame known;
  known.type = FrameType::known;
  say(line, known);
}

void Coordinator::turn_away(Line& line, const std::string& why, bool try_again) {
  Frame frame;
  frame.type = FrameType::refuse;
  frame.sequence = try_again ? 1 : 0;
  frame.payload = why;
  say(line, frame);
  line.closing = true;
}

void Coordinator::begin_job() {
  joined_ = true;
  listener_ = {};
  for (Line& line : lines_) {
    if (line.rank < 0) { line.closing = true; }
  }
  Frame frame;
  frame.type = FrameType::welcome;
  say_to(talk_.everyone(), frame);
}

/// Ends the job because of a message on `line`.
void Coordinator::give_up(Line& line, const std::string& why) {
  turn_away(line, why, /*try_again=*/false);
  give_up(why);
}

void Coordinator::give_up(const std::string& why) {
  given_up_ = true;
  listener_ = {};
  for (Line& line : lines_) {
    if (line.rank >= 0) { turn_away(line, why, /*try_again=*/false); }
  }
}

void Coordinator::on_frame(Line& line, Frame& frame) {
  const bool ends = frame.type == FrameType::text && frame.call == CallKind::end;
  talk_.hear(line.rank, frame);
  line.at_end = line.at_end || ends;
}

void Coordinator::on_closed(Line& line) {
  if (line.closing) {
    line.out.clear();
    return;
  }
  line.closing = true;
  line.out.clear();
  if (line.rank < 0 || !joined_ || line.at_end) {
    line.rank = -1;  // the process may connect again
    return;
  }
  Frame frame;
  frame.type = FrameType::lost;
  frame.rank = line.rank;
  frame.payload = line.who;
  say_to(talk_.everyone(), frame);
}

/// Reports a rank that breaks the protocol as such, and not as lost.
void Coordinator::on_broken(Line& line, const std::string& problem) {
  if (line.rank < 0 || !joined_ || line.at_end) { return on_closed(line); }
  say_to(talk_.everyone(),
         told_by(line.rank == 0 ? 1 : 0,
                 broken_text(fmt::format("{} ({})", names_.of(line.rank), line.who), problem)));
  line.closing = true;
}

Coordinator::Line* Coordinator::line_of(int rank) {
  const auto found = std::find_if(lines_.begin(), lines_.end(),
                                  [rank](const Line& line) { return line.rank == rank; });
  return found == lines_.end() ? nullptr : &*found;
}

void Coordinator::say(Line& line, const Frame& frame) {
  append(line.out.bytes(), frame);
}

void Coordinator::say_to(const std::vector<int>& ranks, const Frame& frame) {
  for (Line& line : lines_) {
    if (!line.closing && std::ranges::binary_search(ranks, line.rank)) { say(line, frame); }
  }
}

}  // namespace tessera::comm
