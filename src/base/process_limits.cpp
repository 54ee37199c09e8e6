#include "base/process_limits.hpp"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/number_text.hpp"
#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"

namespace tessera {
namespace {

constexpr std::size_t kUsualStack = std::size_t{8} << 20;
// Beside its stack a thread needs guard pages and storage of its own.
constexpr std::size_t kBesideStack = std::size_t{1} << 20;

/// The limit that applies now; empty if there is none.
std::optional<std::size_t> limit_of(__rlimit_resource resource) noexcept {
  rlimit limit{};
  const bool known = ::getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
  return known ? std::optional<std::size_t>{limit.rlim_cur} : std::nullopt;
}

std::size_t address_space_used() {
  std::string line;
  std::getline(std::ifstream{"/proc/self/statm"}, line);
  std::string_view numbers{line};
  return take_number<std::size_t>(numbers).value_or(0) *
         static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

bool stack_fits(std::size_t address_space) {
  const std::size_t stack = limit_of(RLIMIT_STACK).value_or(kUsualStack);
  return address_space_used() + stack + kBesideStack <= address_space;
}

}  // namespace

std::string no_thread_text(const std::system_error& error) {
  if (const auto limit = limit_of(RLIMIT_AS); limit && !stack_fits(*limit)) {
    return fmt::format(
        "{}: {} of the address space, which is limited to {} (ulimit -v), are in use; raise that "
        "limit, or lower the size of stacks (ulimit -s), the number of threads or that of ranks",
        error.what(), format_bytes(address_space_used()), format_bytes(*limit));
  }
  const auto processes = limit_of(RLIMIT_NPROC);
  return fmt::format(
      "{}; lower the number of threads or of ranks, or raise the limit of processes (ulimit -u{}; "
      "in a container also pids.max)",
      error.what(), processes ? fmt::format(", now {}", *processes) : ", now unlimited");
}

std::thread start_thread(std::string_view purpose, std::function<void()> work) {
  try {
    return std::thread{std::move(work)};
  } catch (const std::system_error& error) {
    throw Error{fmt::format("{} cannot be started: {}", purpose, no_thread_text(error))};
  }
}

std::string no_memory_text() {
  const auto limit = limit_of(RLIMIT_AS);
  if (!limit) { return "out of memory"; }
  return fmt::format("out of memory: the address space is limited to {} (ulimit -v)",
                     format_bytes(*limit));
}

}  // namespace tessera
