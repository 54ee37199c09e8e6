#include "checkpoint/partial_folder.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>

#include "base/machine.hpp"
#include "checkpoint/step_folders.hpp"

namespace tessera::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr auto kOld = std::chrono::hours{1};

/// Whether nothing in `folder` was written for a long time.
bool is_old(const fs::path& folder) {
  std::error_code error;
  auto last = fs::last_write_time(folder, error);
  if (error) { return false; }
  fs::directory_iterator entry{folder, error};
  for (; !error && entry != fs::directory_iterator{}; entry.increment(error)) {
    last = std::max(last, fs::last_write_time(entry->path(), error));
  }
  return !error && last + kOld < fs::file_time_type::clock::now();
}

bool is_own(const fs::path& folder) {
  return folder.filename().string().find(fmt::format(".{}-", machine_mark())) != std::string::npos;
}

int open_claim(const fs::path& folder) {
  const fs::path claim = folder / claim_of(folder.filename().string());
  return ::open(claim.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

PartialFolder::Writer writer_of(int claim, bool own, bool old) {
  using Writer = PartialFolder::Writer;
  if (claim < 0) { return errno == ENOENT ? Writer::none : Writer::living; }
  const bool locked = ::flock(claim, LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno == EWOULDBLOCK) { return Writer::living; }
  return (locked && own) || old ? Writer::dead : Writer::living;
}

}  // namespace

PartialFolder::PartialFolder(const fs::path& path)
    : own_{is_own(path)},
      old_{is_old(path)},
      claim_{open_claim(path)},
      writer_{writer_of(claim_, own_, old_)} {}

PartialFolder::~PartialFolder() {
  if (claim_ >= 0) { ::close(claim_); }
}

}  // namespace tessera::checkpoint
