#include "tools/common/stack_limit.hpp"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstddef>

#include "tessera/base/bytes.hpp"
#include "tessera/base/error.hpp"

namespace tessera::tools {
namespace {

// Measured with three small models (x86-64, GCC 12): 160 KiB end in SIGSEGV, 192 KiB suffice. A
// matrix product of Eigen may take 256 KiB, two blocks of EIGEN_STACK_ALLOCATION_LIMIT.
constexpr std::size_t kLeastStack = std::size_t{512} << 10;

}  // namespace

void require_stack() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kLeastStack) { return; }
  throw ConfigError(
      fmt::format("stacks are limited to {} (ulimit -s), and ranks need {}; raise that limit",
                  format_bytes(limit.rlim_cur), format_bytes(kLeastStack)));
}

}  // namespace tessera::tools
