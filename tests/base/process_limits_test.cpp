// Errors name the limit that was hit.
#include "base/process_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <thread>
#include <vector>

#include "tessera/base/error.hpp"

namespace tessera::process_limits_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

/// Leaves the process `more` bytes of address space during its lifetime.
class SmallAddressSpace {
 public:
  explicit SmallAddressSpace(std::size_t more) {
    ::getrlimit(RLIMIT_AS, &before_);
    std::size_t pages = 0;
    std::ifstream{"/proc/self/statm"} >> pages;
    rlimit limited = before_;
    limited.rlim_cur = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + more;
    ::setrlimit(RLIMIT_AS, &limited);
  }
  SmallAddressSpace(const SmallAddressSpace&) = delete;
  SmallAddressSpace& operator=(const SmallAddressSpace&) = delete;
  ~SmallAddressSpace() { ::setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_{};
};

/// Starts threads that wait, until one is refused, and returns the error. Stacks of threads that
/// have ended are kept for others, so the first need no new address space.
std::string refused_thread() {
  std::promise<void> end;
  const std::shared_future<void> ended = end.get_future().share();
  std::vector<std::thread> threads;
  std::string refusal = "nothing";
  try {
    while (threads.size() < 64) {
      threads.push_back(start_thread("a thread", [ended] { ended.wait(); }));
    }
  } catch (const Error& error) { refusal = error.what(); }
  end.set_value();
  for (std::thread& thread : threads) { thread.join(); }
  return refusal;
}

TEST(ProcessLimits, AThreadWithoutAddressSpaceIsNotBlamedOnTheNumberOfProcesses) {
  if (TESSERA_SANITIZED) { GTEST_SKIP() << "sanitizers reserve terabytes of address space"; }
  const SmallAddressSpace small{std::size_t{1} << 20};
  EXPECT_THAT(refused_thread(),
              AllOf(HasSubstr("a thread cannot be started: "), HasSubstr("of the address space"),
                    HasSubstr("(ulimit -v)"), Not(HasSubstr("ulimit -u"))));
}

TEST(ProcessLimits, AnyOtherRefusalNamesTheNumberOfProcesses) {
  const std::system_error refused{EAGAIN, std::generic_category()};
  EXPECT_THAT(no_thread_text(refused), AllOf(HasSubstr("ulimit -u"), HasSubstr("pids.max")));
}

TEST(ProcessLimits, MemoryThatIsUsedUpNamesALimitedAddressSpace) {
  EXPECT_EQ(no_memory_text(), "out of memory");
  if (TESSERA_SANITIZED) { GTEST_SKIP() << "sanitizers reserve terabytes of address space"; }
  const SmallAddressSpace small{std::size_t{64} << 20};
  EXPECT_THAT(no_memory_text(), AllOf(HasSubstr("out of memory: "), HasSubstr("(ulimit -v)")));
}

}  // namespace
}  // namespace tessera::process_limits_test
