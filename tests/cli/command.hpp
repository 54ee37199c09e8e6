#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/gpt_rounding.hpp"
#include "support/places.hpp"

extern char** environ;

namespace tessera::test {

/// How a run of the tessera command ended.
struct Outcome {
  int status = -1;  ///< exit status; -1 if it was killed
  std::string out;
  std::string err;
  double processor_seconds = 0;
  long most_kib = 0;  ///< peak resident memory
};

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream{path, std::ios::binary} << bytes;
}

/// Tests that run the real command in a temporary folder.
class CommandTest : public testing::Test {
 protected:
  CommandTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tessera-cli-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    write_file(folder_ / "text.txt", text(20'000));
  }
  ~CommandTest() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

  /// The names of what is in a folder of the test's.
  [[nodiscard]] std::set<std::string> names_in(const std::string& folder) const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator{path(folder)}) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  /// Training text: words in a fixed pseudorandom order.
  static std::string text(std::size_t bytes) {
    const std::vector<std::string> words = {"the ",    "tile ", "of ",  "a ",
                                            "mosaic ", "is ",   "set\n"};
    std::string all;
    for (std::uint32_t state = 7; all.size() < bytes; state = state * 1'664'525U + 1'013'904'223U) {
      all += words[(state >> 16) % words.size()];
    }
    all.resize(bytes);
    return all;
  }

  [[nodiscard]] Outcome tessera(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), test::kCommand);
    return run(std::move(arguments));
  }
  /// Runs `script` in a shell, in which "$0" "$@" is the command with `arguments`.
  [[nodiscard]] Outcome shell(const std::string& script, std::vector<std::string> arguments) const {
    const std::vector<std::string> before = {"/bin/sh", "-c", script, test::kCommand};
    arguments.insert(arguments.begin(), before.begin(), before.end());
    return run(std::move(arguments));
  }

  [[nodiscard]] Outcome run(std::vector<std::string> words) const {
    std::vector<char*> raw;
    for (std::string& word : words) { raw.push_back(word.data()); }
    raw.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&actions, 1, path("out").c_str(), flags, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, path("err").c_str(), flags, 0600);
    pid_t process = 0;
    const int failed = posix_spawn(&process, raw[0], &actions, nullptr, raw.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    EXPECT_EQ(failed, 0) << "cannot start " << raw[0];
    int status = 0;
    rusage usage{};
    EXPECT_EQ(wait4(process, &status, 0, &usage), process);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("out")),
            read_file(path("err")), seconds(usage.ru_utime) + seconds(usage.ru_stime),
            usage.ru_maxrss};
  }

  static double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  }

  /// The arguments of a short run: three ranks, and sizes that three does not divide.
  [[nodiscard]] std::vector<std::string> small(const std::string& command,
                                               const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {
        command,   "--data", path("text.txt"), "--layers", "2",       "--hidden", "20",
        "--heads", "2",      "--seq",          "16",       "--ranks", "3",        "--batch",
        "2"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  /// Bounds between runs of small() that add in different orders.
  [[nodiscard]] static GPTBounds small_bounds() {
    return between_runs({.layers = 2, .hidden = 20, .heads = 2, .vocab = 256, .seq = 16}, 12 * 16);
  }

  /// The objects of a log, one per line.
  [[nodiscard]] std::vector<nlohmann::json> log(const std::string& name) const {
    std::vector<nlohmann::json> lines;
    std::ifstream file{folder_ / name};
    for (std::string line; std::getline(file, line);) {
      lines.push_back(nlohmann::json::parse(line));
    }
    return lines;
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace tessera::test
