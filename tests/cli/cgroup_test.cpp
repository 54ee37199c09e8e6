// The lowest limit of memory on the path of a process's cgroup, in made trees.
#include "tools/common/cgroup.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

#include "support/temporary_folder.hpp"

namespace tessera::tools::cgroup_test {
namespace {

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
const std::string kV2Mount =
    "31 23 0:28 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n";
const std::string kV1Mount =
    "34 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw shared:14 - cgroup cgroup rw,memory\n";

using Files = std::map<std::string, std::string>;

std::size_t limit_in(const Files& files) {
  const test::TemporaryFolder root;
  for (const auto& [name, text] : files) { root.write(name, text); }
  return cgroup_memory_limit(root.path());
}

TEST(Cgroup, WithoutAnyThereIsNoLimit) {
  EXPECT_EQ(limit_in({}), kNone);
  EXPECT_EQ(limit_in({{"proc/self/cgroup", "0::/a\n"}, {"proc/self/mountinfo", ""}}), kNone);
  EXPECT_EQ(limit_in({{"proc/self/cgroup", ""}, {"proc/self/mountinfo", kV2Mount}}), kNone);
}

TEST(Cgroup, OfVersion2TheLowestOnThePathCounts) {
  Files files = {{"proc/self/mountinfo", kV2Mount},
                 {"proc/self/cgroup", "0::/slurm/job 7/step\n"},
                 {"sys/fs/cgroup/slurm/memory.max", "max\n"},
                 {"sys/fs/cgroup/slurm/job 7/memory.max", "5000\n"},
                 {"sys/fs/cgroup/slurm/job 7/step/memory.max", "9000\n"},
                 {"sys/fs/cgroup/slurm/job 8/memory.max", "1\n"},
                 {"sys/fs/cgroup/slurm/job 7/step/inner/memory.max", "2\n"}};
  EXPECT_EQ(limit_in(files), 5000U);
  files["sys/fs/cgroup/slurm/job 7/step/memory.max"] = "400\n";
  EXPECT_EQ(limit_in(files), 400U);
  files["sys/fs/cgroup/memory.max"] = "30\n";
  EXPECT_EQ(limit_in(files), 30U);
}

TEST(Cgroup, OfVersion1TheGroupOfItsMemoryControllerCounts) {
  Files files = {{"proc/self/mountinfo", kV1Mount},
                 {"proc/self/cgroup", "9:name=systemd:/x\n8:cpu,memory:/a/b\n0::/a\n"},
                 {"sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"},
                 {"sys/fs/cgroup/memory/a/memory.limit_in_bytes", "7000\n"},
                 {"sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n"},
                 {"sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1\n"}};
  EXPECT_EQ(limit_in(files), 7000U);
  files["proc/self/mountinfo"] += "36 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
  files["sys/fs/cgroup/unified/a/memory.max"] = "600\n";
  EXPECT_EQ(limit_in(files), 600U) << "both versions at once";
}

// Without a namespace of its own, a container sees its host's names and its own mount.
TEST(Cgroup, OfAContainerTheMountedGroupCounts) {
  const std::string mount =
      "35 31 0:32 /docker/7 /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  Files files = {{"proc/self/mountinfo", mount},
                 {"proc/self/cgroup", "8:memory:/docker/7\n"},
                 {"sys/fs/cgroup/memory/memory.limit_in_bytes", "800\n"},
                 {"sys/fs/cgroup/memory/in/memory.limit_in_bytes", "80\n"}};
  EXPECT_EQ(limit_in(files), 800U);
  files["proc/self/cgroup"] = "8:memory:/docker/7/in\n";
  EXPECT_EQ(limit_in(files), 80U);
  files["proc/self/cgroup"] = "8:memory:/elsewhere\n";
  EXPECT_EQ(limit_in(files), 800U);
  files["proc/self/cgroup"] = "8:memory:/../outside\n";
  EXPECT_EQ(limit_in(files), 800U);
}

}  // namespace
}  // namespace tessera::tools::cgroup_test
