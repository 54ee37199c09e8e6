#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"

namespace tessera::test {

/// Polls `reached` for at most a minute; false if it stays false.
inline bool wait_until(const std::function<bool()>& reached) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes{1};
  while (!reached()) {
    if (std::chrono::steady_clock::now() > end) { return false; }
    (void)::poll(nullptr, 0, 2);
  }
  return true;
}

/// A running command. The destructor kills it with SIGKILL unless it has ended.
class RunningCommand {
 public:
  /// `words` are a program and its arguments; its output goes to files whose names begin with
  /// `said`.
  RunningCommand(std::vector<std::string> words, const std::string& said)
      : out_{said + ".out"}, err_{said + ".err"} {
    std::vector<char*> raw;
    for (std::string& word : words) { raw.push_back(word.data()); }
    raw.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), flags, 0600);
    const int failed = posix_spawnp(&process_, raw[0], &actions, nullptr, raw.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(failed, 0) << "cannot start " << raw[0];
  }
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;
  ~RunningCommand() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
  }

  [[nodiscard]] pid_t process() const noexcept { return process_; }
  void send(int signal) const { EXPECT_EQ(::kill(process_, signal), 0); }
  /// Whether its ranks have started as threads and it handles signals.
  [[nodiscard]] bool trains() const {
    const std::string caught = said_by_the_system("SigCgt:");
    return threads() > 3 && ((std::stoull(caught, nullptr, 16) >> (SIGTERM - 1)) & 1U) != 0;
  }
  [[nodiscard]] int threads() const { return std::stoi(said_by_the_system("Threads:")); }
  /// Whether it has ended; its status is kept.
  [[nodiscard]] bool has_ended() {
    if (process_ > 0 && ::waitpid(process_, &status_, WNOHANG) == process_) { process_ = -1; }
    return process_ < 0;
  }
  /// Waits for the end: its exit status, or -S if signal S has killed it.
  [[nodiscard]] Outcome wait() {
    EXPECT_TRUE(wait_until([this] { return has_ended(); })) << "it hangs";
    const int status = WIFEXITED(status_) ? WEXITSTATUS(status_) : -WTERMSIG(status_);
    return {status, read_file(out_), read_file(err_)};
  }

 private:
  /// The value behind `name` in the process's status in /proc; "0" if there is none.
  [[nodiscard]] std::string said_by_the_system(const std::string& name) const {
    const std::string status = read_file("/proc/" + std::to_string(process_) + "/status");
    const std::size_t at = status.find(name);
    return at == std::string::npos ? "0" : status.substr(at + name.size());
  }

  std::string out_;
  std::string err_;
  pid_t process_ = -1;
  int status_ = 0;
};

/// A named pipe for --log: the test can read the log, and block the writer.
class NamedPipe {
 public:
  explicit NamedPipe(std::string path) : path_{std::move(path)} {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    reader_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(reader_, 0);
  }
  NamedPipe(const NamedPipe&) = delete;
  NamedPipe& operator=(const NamedPipe&) = delete;
  ~NamedPipe() { close_reader(); }

  void close_reader() {
    if (reader_ >= 0) { ::close(reader_); }
    reader_ = -1;
  }
  /// Blocks later writers.
  void fill() {
    const int writer = ::open(path_.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    const std::array<char, 512> block{};
    while (::write(writer, block.data(), block.size()) > 0) {}
    ::close(writer);
  }
  /// Reads until there are `count` lines.
  [[nodiscard]] bool read_lines(std::size_t count) {
    return wait_until([&] {
      read_some();
      return lines() >= count;
    });
  }
  /// Reads what is available; false once there is no writer.
  bool read_some() {
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t got = ::read(reader_, buffer.data(), buffer.size());
      if (got <= 0) { return got != 0; }
      text_.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }
  /// Reads to the end of the output.
  void read_to_end() {
    EXPECT_TRUE(wait_until([this] { return !read_some(); }));
  }
  [[nodiscard]] std::size_t lines() const {
    return static_cast<std::size_t>(std::count(text_.begin(), text_.end(), '\n'));
  }

 private:
  std::string path_;
  int reader_ = -1;
  std::string text_;
};

}  // namespace tessera::test
