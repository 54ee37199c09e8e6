// The tessera command: reads the arguments, runs the command, and returns a status for scripts.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "tessera/base/error.hpp"
#include "tessera/world/launch.hpp"
#include "tools/bench/bench.hpp"
#include "tools/checkpoint/checkpoint_command.hpp"
#include "tools/common/exit_status.hpp"
#include "tools/common/processor.hpp"
#include "tools/common/stack_limit.hpp"
#include "tools/common/standard_streams.hpp"
#include "tools/compare/compare.hpp"
#include "tools/doctor/doctor.hpp"
#include "tools/options/command_line.hpp"
#include "tools/options/ranks.hpp"
#include "tools/plan/plan_command.hpp"
#include "tools/sample/sample.hpp"
#include "tools/scale/scale_command.hpp"
#include "tools/train/train.hpp"

namespace {

/// The command line, quoted so that it can be typed again.
std::string typed(std::span<const char* const> arguments) {
  std::string line = "tessera";
  for (const std::string_view argument : arguments) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,./:@%";
    if (!argument.empty() && argument.find_first_not_of(plain) == std::string_view::npos) {
      line += fmt::format(" {}", argument);
      continue;
    }
    line += " '";
    for (const char c : argument) { line += c == '\'' ? std::string{"'\\''"} : std::string{c}; }
    line += '\'';
  }
  return line;
}

void run(std::span<const char* const> arguments) {
  using namespace tessera::tools;
  require_processor();
  in_turn([] { require_stack(); });
  if (!arguments.empty() && std::string_view{arguments.front()} == "bench") {
    if (runs_alone("bench")) { run_bench(arguments.subspan(1)); }
    return;
  }
  if (!arguments.empty() && std::string_view{arguments.front()} == "checkpoint") {
    if (runs_alone("checkpoint")) { run_checkpoint(arguments.subspan(1)); }
    return;
  }
  Request request = in_turn([&] { return parse_command_line(arguments); });
  request.settings.command_line = typed(arguments);
  if (tessera::launched_rank() == 0) { tell(request.note); }
  if (!request.settings.write_config.empty()) {
    if (runs_alone(request.command)) { write_config(request); }
    return;
  }
  if (request.command == "train") { return train(request.settings); }
  if (request.command == "compare") { return compare(request.settings); }
  if (request.command == "sample") { return sample(request.settings); }
  if (!runs_alone(request.command)) { return; }
  if (request.command == "plan") { return plan_command(request.settings); }
  if (request.command == "scale") { return scale_command(request.settings); }
  if (request.command == "doctor") { return doctor(request.settings); }
  fmt::print("{}", request.text);
}

}  // namespace

int main(int count, char** arguments) {
  tessera::tools::open_closed_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit becomes an error like a full disk
  const std::span<const char* const> all{arguments, static_cast<std::size_t>(count)};
  return static_cast<int>(tessera::tools::guarded([&] {
    run(all.subspan(1));
    // Buffered output may still fail, for example on a full disk.
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      throw tessera::Error("cannot write to standard output");
    }
  }));
}
