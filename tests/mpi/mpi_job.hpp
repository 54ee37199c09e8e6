#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace tessera::test {

/// A program started by mpirun, and its output. Everything has a deadline: a job that hangs is
/// killed, and the test fails.
class MpiJob {
 public:
  MpiJob(int ranks, const std::vector<std::string>& command);
  MpiJob(const MpiJob&) = delete;
  MpiJob& operator=(const MpiJob&) = delete;
  ~MpiJob();

  /// Reads until the job has printed `text` `times` times. False if it ends before.
  [[nodiscard]] bool wait_for(const std::string& text, int times);
  /// Ends the standard input of rank 0; it is empty until then.
  void end_input() noexcept;
  /// Reads until the end; mpirun's exit status, or -1 if it was killed for hanging.
  [[nodiscard]] int wait();
  /// The job's standard output and error so far.
  [[nodiscard]] const std::string& output() const noexcept { return output_; }

 private:
  [[nodiscard]] bool read_some();

  pid_t mpirun_ = -1;
  int pipe_ = -1;
  int input_ = -1;
  std::string output_;
  std::chrono::steady_clock::time_point end_;
};

}  // namespace tessera::test
