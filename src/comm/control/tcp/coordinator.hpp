#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/control/rank_names.hpp"
#include "comm/control/tcp/frame.hpp"
#include "comm/control/tcp/job_talk.hpp"
#include "comm/control/tcp/socket.hpp"
#include "comm/control/wait_clock.hpp"

namespace tessera::comm {

/// What all ranks of a job have in common. A process that differs does not belong to it.
struct JobIdentity {
  int size = 1;
  std::string build;  ///< the program's build
  std::string token;  ///< the launch's token; empty if the launcher gives none
  /// The launch's secret, known only to its processes; empty if there is none.
  std::string secret = {};
  std::string secret_from = "TESSERA_JOB_SECRET";  ///< where the secret comes from, for errors
  /// What to check if ranks do not find each other.
  std::string remedy = "MASTER_ADDR and MASTER_PORT must name the same address on all machines";
};

/// The centre of a job's control plane, on a thread of rank 0's process: ranks connect to it, and
/// it passes messages on. It decides which processes may join, finds batches that differ, and
/// answers which ranks are late.
///
/// A connection that does not begin as a rank of this job does is closed; it can use no more than a
/// few hundred bytes and some seconds. If many connections arrive at once, those that have sent
/// nothing for longest are closed first, and those of one address before others: a rank identifies
/// itself right after connecting. Nothing is accepted once all ranks are here.
class Coordinator {
 public:
  /// `own` is the coordinator's end of rank 0's connection, which is made within the process. Ranks
  /// missing after `patience` are named to those that are here. `names` outlives
  /// this.
  Coordinator(JobIdentity job, const RankNames& names, Socket listener, Socket own,
              std::chrono::milliseconds patience);
  /// Sends the pending messages first, for a second at most.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

 private:
  struct Line {
    Line(Socket socket_, FrameReader in_) : socket{std::move(socket_)}, in{std::move(in_)} {}

    Socket socket;
    FrameReader in;
    Outbox out = {};
    WaitClock::Time since = {};
    int rank = -1;  // -1 before it has identified itself
    std::string who = {};
    std::string host = {};  // the host that it connects from
    bool at_end = false;
    bool closing = false;  // closes once `out` is sent
  };
  void serve();
  void serve_all();
  void end_without_memory() noexcept;
  void serve_once(int timeout_ms);
  [[nodiscard]] int timeout_ms() const;
  void look_at_time();
  void let_in();
  Line& add_line(Socket socket);
  void make_room_for(const std::string& host);
  bool close_first_stranger(const std::string* host);
  void read(Line& line);
  [[nodiscard]] std::string take(Line& line, std::string_view bytes);
  static void write(Line& line);
  void close_ended();

  void on_hello(Line& line, const Frame& frame);
  void on_frame(Line& line, Frame& frame);
  void on_closed(Line& line);
  void on_broken(Line& line, const std::string& problem);
  void begin_job();
  void give_up(const std::string& why);
  void give_up(Line& line, const std::string& why);
  [[nodiscard]] Line* line_of(int rank);
  static void say(Line& line, const Frame& frame);
  static void turn_away(Line& line, const std::string& why, bool try_again);
  void say_to(const std::vector<int>& ranks, const Frame& frame);

  const JobIdentity job_;
  const RankNames& names_;
  WaitClock clock_;
  const WaitClock::Time join_end_;
  Socket listener_;
  Socket wake_reader_;
  Socket wake_writer_;
  std::list<Line> lines_;
  bool joined_ = false;
  bool given_up_ = false;
  JobTalk talk_;
  std::string last_words_;  // a frame, made beforehand: for when there is no memory left
  std::atomic<bool> stop_ = false;
  std::thread thread_;  // last: it uses all members above
};

}  // namespace tessera::comm
