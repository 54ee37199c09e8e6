#include "tessera/base/error.hpp"

#include <execinfo.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

namespace tessera::detail {
namespace {

// Only the file's name: its folders are those of the machine that compiled it.
std::string_view file_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

void throw_contract(std::string_view what, CallSite where) {
  throw ContractError(fmt::format("{} ({}:{})", what, file_name(where.file), where.line));
}

void assertion_failed(const char* what, CallSite where) noexcept {
  // No allocation from here on: the heap may be broken.
  std::fprintf(stderr, "tessera: bug in the library: %s does not hold (%s:%d)\n", what, where.file,
               where.line);
  std::array<void*, 64> frames{};
  const int count = backtrace(frames.data(), static_cast<int>(frames.size()));
  backtrace_symbols_fd(frames.data(), count, STDERR_FILENO);
  std::abort();
}

}  // namespace tessera::detail
