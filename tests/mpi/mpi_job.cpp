#include "mpi/mpi_job.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "support/places.hpp"

namespace tessera::test {
namespace {

constexpr std::chrono::seconds kLongest{60};

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> all;
  for (std::string& word : words) { all.push_back(word.data()); }
  all.push_back(nullptr);
  return all;
}

struct Pipe {
  int from;
  int to;
};

// A process of the job that inherited the pipe would keep it open.
Pipe make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) { throw std::runtime_error{"pipe2"}; }
  return {ends[0], ends[1]};
}

}  // namespace

MpiJob::MpiJob(int ranks, const std::vector<std::string>& command)
    : end_{std::chrono::steady_clock::now() + kLongest} {
  std::vector<std::string> words{test::kLauncher, "-n", std::to_string(ranks)};
  words.insert(words.end(), command.begin(), command.end());
  std::vector<char*> arguments = pointers(words);
  const auto [from, to] = make_pipe();
  const auto [their_input, our_input] = make_pipe();
  mpirun_ = ::fork();
  if (mpirun_ == 0) {
    ::dup2(their_input, STDIN_FILENO);
    ::dup2(to, STDOUT_FILENO);
    ::dup2(to, STDERR_FILENO);
    ::setenv("MPIEXEC", test::kMpiexec, 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0",
             1);  // MPI does not free what it allocates at its start
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(to);
  ::close(their_input);
  pipe_ = from;
  input_ = our_input;
}

MpiJob::~MpiJob() {
  if (mpirun_ > 0) { (void)wait(); }
  end_input();
  ::close(pipe_);
}

void MpiJob::end_input() noexcept {
  if (input_ >= 0) { ::close(input_); }
  input_ = -1;
}

bool MpiJob::read_some() {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      end_ - std::chrono::steady_clock::now());
  pollfd watched{pipe_, POLLIN, 0};
  if (left.count() <= 0 || ::poll(&watched, 1, static_cast<int>(left.count())) <= 0) {
    return false;
  }
  std::array<char, 4096> buffer{};
  const ssize_t count = ::read(pipe_, buffer.data(), buffer.size());
  if (count <= 0) { return false; }
  output_.append(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

bool MpiJob::wait_for(const std::string& text, int times) {
  for (;;) {
    int found = 0;
    for (auto at = output_.find(text); at != std::string::npos; at = output_.find(text, at + 1)) {
      ++found;
    }
    if (found >= times) { return true; }
    if (!read_some()) { return false; }
  }
}

int MpiJob::wait() {
  while (read_some()) {}
  const bool hangs = std::chrono::steady_clock::now() >= end_;
  if (hangs) { ::kill(mpirun_, SIGTERM); }  // mpirun ends its processes
  int status = 0;
  ::waitpid(mpirun_, &status, 0);
  mpirun_ = -1;
  if (hangs) { return -1; }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace tessera::test
